//! Addresses of host names, from a name service that may hang.
//!
//! It is the system's own (`getaddrinfo`), which alone knows what this host was told: its hosts file, search domains,
//! other sources of names. It blocks its thread for as long as the name service makes it wait, and nothing calls it off.
//! So each look-up has a thread of its own, which neither other blocking work nor the end of the runtime waits for;
//! [`Lookups`] bounds how many there are, [`Name`] shares one among all who want the same name and remembers what it
//! brought: an address that was good stays good while nobody can be asked.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::limits::{ADDRESSES_FRESH, LOOKUP_PAUSE};

/// Who knows the addresses of names.
pub trait Service: Send + Sync + 'static {
    /// Asks, and blocks until there is an answer.
    ///
    /// # Errors
    /// There is none.
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's name service.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Service for System {
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (host, port).to_socket_addrs().map(Iterator::collect)
    }
}

/// Look-ups, so many at a time. Cheap to clone; clones share the bound.
#[derive(Clone)]
pub struct Lookups {
    service: Arc<dyn Service>,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups")
            .field("free", &self.permits.available_permits())
            .finish_non_exhaustive()
    }
}

impl Lookups {
    /// Asks the system, on up to `most` threads.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self::with(System, most)
    }

    /// As [`Self::new`] with another service.
    #[must_use]
    pub fn with(service: impl Service, most: usize) -> Self {
        Self {
            service: Arc::new(service),
            permits: Arc::new(Semaphore::new(most)),
        }
    }

    /// One look-up, when it is its turn. A caller that leaves does not end it, and the permit stays with its thread: a
    /// look-up that hangs longer than anybody waits still counts.
    ///
    /// # Errors
    /// The service has no answer, or the system has no thread.
    pub async fn look_up(&self, host: Arc<str>, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let service = Arc::clone(&self.service);
        let (answer, answered) = oneshot::channel();
        thread::Builder::new().name("look-up".to_owned()).spawn(move || {
            let found = service.look_up(&host, port);
            drop(permit);
            // Who asked may have left.
            let _left = answer.send(found);
        })?;
        answered.await.map_err(io::Error::other)?
    }
}

/// A host, and what is known of its addresses.
#[derive(Debug)]
pub struct Name {
    host: Arc<str>,
    port: u16,
    lookups: Lookups,
    /// The host is an address: there is nothing to look up.
    literal: Option<Arc<[SocketAddr]>>,
    state: Arc<Mutex<State>>,
}

/// Addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In the order of the service; at least one.
    pub addresses: Arc<[SocketAddr]>,
    /// Not if the name service hangs or has failed: they are the last that it told.
    pub current: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The last that were found.
    known: Option<Arc<[SocketAddr]>>,
    /// Until when they are used without asking again.
    until: Option<Instant>,
    /// The last look-up failed.
    failed: bool,
    asking: Option<Asking>,
}

/// A look-up in flight.
#[derive(Clone, Debug)]
struct Asking {
    since: Instant,
    answer: watch::Receiver<Option<Answer>>,
}

/// An error is kept as what can be told to several.
type Answer = Result<Arc<[SocketAddr]>, (io::ErrorKind, Arc<str>)>;

impl Name {
    /// Nothing is looked up yet.
    #[must_use]
    pub fn new(host: &str, port: u16, lookups: Lookups) -> Self {
        let literal = host.parse::<IpAddr>().ok();
        Self {
            host: host.into(),
            port,
            lookups,
            literal: literal.map(|ip| Arc::from([SocketAddr::new(ip, port)])),
            state: Arc::default(),
        }
    }

    /// Its addresses. Where some are known, a look-up is waited for until it is `patience` old, and goes on without
    /// this caller; where none are, for as long as it takes.
    ///
    /// # Errors
    /// None are known and the look-up failed.
    pub async fn addresses(&self, patience: Duration) -> io::Result<Found> {
        if let Some(addresses) = self.literal.clone() {
            return Ok(Found {
                addresses,
                current: true,
            });
        }
        let (known, mut asking) = {
            let mut state = lock(&self.state);
            let now = Instant::now();
            if let Some(addresses) = state.known.clone()
                && state.until.is_some_and(|until| now < until)
            {
                return Ok(Found {
                    addresses,
                    current: !state.failed,
                });
            }
            let asking = state.asking.get_or_insert_with(|| self.ask(now)).clone();
            (state.known.clone(), asking)
        };
        let Some(known) = known else {
            return match answer(&mut asking.answer).await {
                Ok(addresses) => Ok(Found {
                    addresses,
                    current: true,
                }),
                Err((kind, why)) => Err(io::Error::new(kind, &*why)),
            };
        };
        let answered = timeout_at(asking.since + patience, answer(&mut asking.answer)).await;
        Ok(match answered {
            Ok(Ok(addresses)) => Found {
                addresses,
                current: true,
            },
            Ok(Err(_)) | Err(_) => Found {
                addresses: known,
                current: false,
            },
        })
    }

    /// Nobody was there: they may have moved, so the next caller asks again.
    pub fn doubt(&self) {
        let mut state = lock(&self.state);
        if !state.failed {
            state.until = None;
        }
    }

    fn ask(&self, since: Instant) -> Asking {
        let (told, answer) = watch::channel(None);
        let (lookups, state) = (self.lookups.clone(), Arc::clone(&self.state));
        let (host, port) = (Arc::clone(&self.host), self.port);
        tokio::spawn(async move {
            let found = match lookups.look_up(host, port).await {
                Ok(addresses) if addresses.is_empty() => {
                    Err((io::ErrorKind::NotFound, "the name has no address".into()))
                }
                Ok(addresses) => Ok(Arc::from(addresses)),
                Err(error) => Err((error.kind(), error.to_string().into())),
            };
            lock(&state).settle(&found);
            told.send_replace(Some(found));
        });
        Asking { since, answer }
    }
}

impl State {
    fn settle(&mut self, found: &Answer) {
        self.asking = None;
        self.failed = found.is_err();
        let pause = match found {
            Ok(addresses) => {
                self.known = Some(Arc::clone(addresses));
                ADDRESSES_FRESH
            }
            Err(_) => LOOKUP_PAUSE,
        };
        self.until = Some(Instant::now() + pause);
    }
}

async fn answer(answer: &mut watch::Receiver<Option<Answer>>) -> Answer {
    match answer.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(found)) => found.clone(),
        // The runtime is at its end.
        Ok(None) | Err(_) => Err((io::ErrorKind::Interrupted, "the look-up was lost".into())),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
