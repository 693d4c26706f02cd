//! The Secret of the authorities: read by every replica, written by the leader alone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Authority, Error, Serving, authority, issue, plan};

/// The authorities, as JSON.
const AUTHORITIES: &str = "authorities.json";
/// Their certificates, for people.
const BUNDLE: &str = "ca.crt";
/// How often the Secret is read while it is empty: a start waits for this.
const WHILE_EMPTY: Duration = Duration::from_millis(500);
/// How often it is read otherwise; a rotation leaves weeks.
const BETWEEN: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Stored {
    certificate: String,
    key: String,
    /// Seconds since 1970.
    not_after: i64,
}

/// Keeps the serving certificate of this replica current, and as the leader the authorities.
pub struct Keeper {
    api: Api<Secret>,
    name: String,
    host: String,
    leads: watch::Receiver<bool>,
    serving: watch::Sender<Option<Serving>>,
    /// Certificate of the authority that signed, and when the serving certificate is to be issued anew.
    issued: Option<(String, Timestamp)>,
}

impl Keeper {
    /// A keeper of the Secret `name`, for a server that is called `host`.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        host: &str,
        leads: watch::Receiver<bool>,
    ) -> (Self, watch::Receiver<Option<Serving>>) {
        let (serving, receiver) = watch::channel(None);
        let keeper = Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            host: host.to_owned(),
            leads,
            serving,
            issued: None,
        };
        (keeper, receiver)
    }

    /// Runs until `stop`. A failure leaves what is served in place.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut said = false;
        loop {
            let pause = match self.once(Timestamp::now()).await {
                Ok(()) => {
                    said = false;
                    BETWEEN
                }
                Err(Error::NoAuthority(_)) => WHILE_EMPTY,
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!(%error, "the certificate authority cannot be kept, what is served stays");
                    }
                    if self.serving.borrow().is_some() {
                        BETWEEN
                    } else {
                        WHILE_EMPTY
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                changed = self.leads.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn once(&mut self, now: Timestamp) -> Result<(), Error> {
        let secret = self
            .api
            .get(&self.name)
            .await
            .map_err(|error| self.failed(error))?;
        let mut held = self.held(&secret);
        let plan = plan::plan(&held, now);
        if *self.leads.borrow() && (plan.make || plan.keep.len() != held.len()) {
            let mut next = plan.keep;
            if plan.make {
                next.insert(0, authority(now)?);
                tracing::info!("made a certificate authority for the push port");
            }
            self.store(secret, &next).await?;
            held = next;
        }
        let signer = plan::signer(&held, now).ok_or_else(|| Error::NoAuthority(self.name.clone()))?;
        let bundle: String = held.iter().map(|one| one.cert.as_str()).collect();
        let current = self
            .issued
            .as_ref()
            .is_some_and(|(by, until)| *by == signer.cert && now < *until);
        if !current {
            let tls = issue(signer, &self.host, now)?;
            let renew = plan::end_of(now, plan::SERVING_DAYS * 2 / 3);
            self.issued = Some((signer.cert.clone(), renew));
            self.serving.send_replace(Some(Serving { tls, bundle }));
        } else {
            self.serving.send_if_modified(|serving| match serving {
                Some(serving) if serving.bundle != bundle => {
                    serving.bundle = bundle;
                    true
                }
                Some(_) | None => false,
            });
        }
        Ok(())
    }

    fn held(&self, secret: &Secret) -> Vec<Authority> {
        let Some(ByteString(bytes)) = secret.data.as_ref().and_then(|data| data.get(AUTHORITIES)) else {
            return Vec::new();
        };
        match serde_json::from_slice::<Vec<Stored>>(bytes) {
            Ok(stored) => stored.into_iter().map(Authority::from).collect(),
            Err(error) => {
                tracing::warn!(secret = self.name, %error, "the kept authorities cannot be read, new ones are made");
                Vec::new()
            }
        }
    }

    /// A conflict means that another replica wrote in between: the next round reads what it wrote.
    async fn store(&self, mut secret: Secret, held: &[Authority]) -> Result<(), Error> {
        let stored: Vec<Stored> = held.iter().map(Stored::from).collect();
        let json = serde_json::to_vec(&stored).unwrap_or_default();
        let bundle: String = held.iter().map(|one| one.cert.as_str()).collect();
        let data = secret.data.get_or_insert_default();
        data.insert(AUTHORITIES.to_owned(), ByteString(json));
        data.insert(BUNDLE.to_owned(), ByteString(bundle.into_bytes()));
        let written = self
            .api
            .replace(&self.name, &PostParams::default(), &secret)
            .await;
        written.map(drop).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: kube::Error) -> Error {
        Error::Secret {
            name: self.name.clone(),
            source: Box::new(source),
        }
    }
}

impl From<Stored> for Authority {
    fn from(stored: Stored) -> Self {
        Self {
            cert: stored.certificate,
            key: stored.key,
            not_after: Timestamp::from_second(stored.not_after).unwrap_or(Timestamp::MIN),
        }
    }
}

impl From<&Authority> for Stored {
    fn from(one: &Authority) -> Self {
        Self {
            certificate: one.cert.clone(),
            key: one.key.clone(),
            not_after: one.not_after.as_second(),
        }
    }
}
