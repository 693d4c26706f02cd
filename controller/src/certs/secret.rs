//! The Secret of the authorities: read by every replica, written by the leader alone.

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Authority, Certificates, Error, Metrics, Serving, authority, issue, issuer,
    limits::{SECRET_EVERY, SECRET_WHILE_EMPTY},
    plan,
    told::Told,
};
use crate::leader::while_leading;

/// The authorities, as JSON.
const AUTHORITIES: &str = "authorities.json";
/// Their certificates, for people.
const BUNDLE: &str = "ca.crt";

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
    told: Told,
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
        metrics: Metrics,
    ) -> (Self, Certificates) {
        let (told, seen) = Told::new(metrics);
        let keeper = Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            host: host.to_owned(),
            leads,
            told,
            issued: None,
        };
        (keeper, seen)
    }

    /// Runs until `stop`. A failure leaves what is served in place.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            match self.once(Timestamp::now()).await {
                Ok(()) => self.told.well(),
                Err(error @ Error::NoAuthority(_)) => self.told.waits(&error.to_string()),
                Err(error) => self.told.failed(&error),
            }
            let pause = if self.told.serves() {
                SECRET_EVERY
            } else {
                SECRET_WHILE_EMPTY
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
        let Held {
            authorities: mut held,
            unusable,
        } = held(&secret);
        let leads = *self.leads.borrow();
        if let Some(why) = &unusable {
            if leads {
                tracing::warn!(
                    secret = self.name,
                    why,
                    "what is no authority in the Secret is dropped"
                );
            } else if held.is_empty() {
                return Err(Error::Unusable(self.name.clone(), why.clone()));
            }
        }
        let plan = plan::plan(&held, now);
        if leads && (plan.make || unusable.is_some() || plan.keep.len() != held.len()) {
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
            let expiry = plan::end_of(now, plan::SERVING_DAYS).min(signer.not_after);
            self.told.serve(Serving { tls, bundle }, expiry);
        } else {
            self.told.bundle(bundle);
        }
        Ok(())
    }

    /// A conflict means that another replica wrote in between: the next round reads what it wrote.
    async fn store(&self, mut secret: Secret, held: &[Authority]) -> Result<(), Error> {
        let stored: Vec<Stored> = held.iter().map(Stored::from).collect();
        let json = serde_json::to_vec(&stored).unwrap_or_default();
        let bundle: String = held.iter().map(|one| one.cert.as_str()).collect();
        let data = secret.data.get_or_insert_default();
        data.insert(AUTHORITIES.to_owned(), ByteString(json));
        data.insert(BUNDLE.to_owned(), ByteString(bundle.into_bytes()));
        let params = PostParams::default();
        let write = self.api.replace(&self.name, &params, &secret);
        match while_leading(&self.leads, write).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(self.failed(error)),
            None => Err(Error::NoAuthority(self.name.clone())),
        }
    }

    fn failed(&self, source: kube::Error) -> Error {
        Error::Secret {
            name: self.name.clone(),
            source: Box::new(source),
        }
    }
}

/// What a Secret holds.
#[derive(Default)]
struct Held {
    authorities: Vec<Authority>,
    /// Something in it is none, and why.
    unusable: Option<String>,
}

fn held(secret: &Secret) -> Held {
    let mut held = Held::default();
    let Some(ByteString(bytes)) = secret.data.as_ref().and_then(|data| data.get(AUTHORITIES)) else {
        return held;
    };
    match serde_json::from_slice::<Vec<Stored>>(bytes) {
        Ok(stored) => {
            for one in stored.into_iter().map(Authority::from) {
                match issuer(&one) {
                    Ok(_) => held.authorities.push(one),
                    Err(error) => held.unusable = Some(error.to_string()),
                }
            }
        }
        Err(error) => held.unusable = Some(error.to_string()),
    }
    held
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
