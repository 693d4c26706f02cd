//! Which replica writes: one Lease, renewed by its holder.
//!
//! A small one of our own: the kept crates for it follow older releases of the client library. Same rules as the
//! election of Kubernetes' own components: the holder renews, others take over when its last renewal is older than
//! the Lease's duration *by their own clock* since they saw it change; a write against an old resource version fails.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long a Lease holds without a renewal.
const DURATION: Duration = Duration::from_secs(15);
/// The holder stops leading when it could not renew for this long: before anybody else may begin.
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two tries.
const RETRY: Duration = Duration::from_secs(2);
/// The longest that a try takes: several fit before the holder has to stop.
const ROUND: Duration = Duration::from_secs(4);

/// The election of one process.
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    leads: watch::Sender<bool>,
    /// The record as last seen, and when it was first seen so.
    observed: Option<(LeaseSpec, Instant)>,
    /// When the last renewal that succeeded was begun.
    renewed: Option<Instant>,
}

/// Does a write as long as this replica leads: one that is under way when it must stop is given up, so that none of its
/// requests is begun or waited for when somebody else may write. `None`: it was not done, or nobody knows.
pub(crate) async fn while_leading<T>(
    leads: &watch::Receiver<bool>,
    write: impl Future<Output = T>,
) -> Option<T> {
    let mut leads = leads.clone();
    tokio::select! {
        biased;
        // Gone with its sender: this replica stops.
        _ = leads.wait_for(|leads| !leads) => None,
        done = write => Some(done),
    }
}

/// What a look at the Lease says.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Write ourselves in.
    Take,
    /// Somebody else holds it.
    Wait,
}

impl Election {
    /// An election over the Lease `name`; `identity` is this pod's name.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> (Self, watch::Receiver<bool>) {
        let (leads, receiver) = watch::channel(false);
        let election = Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            leads,
            observed: None,
            renewed: None,
        };
        (election, receiver)
    }

    /// Runs until `stop`; then the Lease is given up, so that another replica need not wait.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut said = false;
        loop {
            let began = Instant::now();
            let round = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.end() => None,
                round = timeout(ROUND, self.round()) => Some(round),
            };
            match round {
                Some(Ok(Ok(leads))) => {
                    said = false;
                    // From the question on: others count from the answer, which is later.
                    self.renewed = leads.then_some(began);
                    self.set(leads);
                }
                Some(Ok(Err(error))) => lost_touch(&error.to_string(), &mut said),
                Some(Err(_elapsed)) => lost_touch("the API server does not answer", &mut said),
                None => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.end() => {}
                () = sleep(RETRY) => {}
            }
        }
        let led = *self.leads.borrow();
        self.set(false);
        if !led {
            return;
        }
        match timeout(ROUND, self.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "the lease could not be given up, it runs out by itself");
            }
            Err(_elapsed) => tracing::debug!("the lease was not given up in time, it runs out by itself"),
        }
    }

    /// Stops leading when the last renewal is too old, whatever else is going on.
    fn end(&self) -> impl Future<Output = ()> + use<> {
        let leads = self.leads.clone();
        let deadline = self.renewed.map(|renewed| renewed + DEADLINE);
        let identity = self.identity.clone();
        async move {
            match deadline.filter(|_| *leads.borrow()) {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
            set(&leads, &identity, false);
        }
    }

    fn set(&self, leads: bool) {
        set(&self.leads, &self.identity, leads);
    }

    async fn round(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.record(None)),
            };
            return won(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.observed.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.observed = Some((spec.clone(), Instant::now()));
        }
        let since = self
            .observed
            .as_ref()
            .map_or(Duration::ZERO, |(_, at)| at.elapsed());
        if step(&spec, &self.identity, since) == Step::Wait {
            return Ok(false);
        }
        let next = Lease {
            metadata: lease.metadata,
            spec: Some(self.record(Some(&spec))),
        };
        won(self.api.replace(&self.name, &PostParams::default(), &next).await)
    }

    fn record(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.filter(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: mine.map_or_else(|| Some(now.clone()), |spec| spec.acquire_time.clone()),
            renew_time: Some(now.clone()),
            lease_transitions: Some(if mine.is_some() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }
    }

    async fn release(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(&self.name).await?;
        if let Some(spec) = &mut lease.spec
            && spec.holder_identity.as_deref() == Some(&self.identity)
        {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            self.api
                .replace(&self.name, &PostParams::default(), &lease)
                .await?;
        }
        Ok(())
    }
}

fn set(sender: &watch::Sender<bool>, identity: &str, leads: bool) {
    if sender.send_if_modified(|now| std::mem::replace(now, leads) != leads) {
        tracing::info!(identity, leads, "leadership changed");
    }
}

fn lost_touch(why: &str, said: &mut bool) {
    if !std::mem::replace(said, true) {
        tracing::warn!(why, "the lease cannot be read or renewed");
    }
}

fn step(spec: &LeaseSpec, identity: &str, unchanged: Duration) -> Step {
    match spec.holder_identity.as_deref() {
        None | Some("") => Step::Take,
        Some(holder) if holder == identity => Step::Take,
        Some(_other) => {
            let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
            let duration = seconds.map_or(DURATION, Duration::from_secs);
            if unchanged > duration {
                Step::Take
            } else {
                Step::Wait
            }
        }
    }
}

/// Somebody else was faster: no error.
fn won<T>(written: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
