//! A simulated Dynamo fleet in one process: workers that register in a file store and publish `kv_metrics` over
//! ZMTP, and direct-mode frontends that obey pins and refuse as real ones do.
//!
//! For `make run`, scale tests and benches. It proves nothing about Dynamo: the end-to-end tests run the real one.

mod file_store;
mod frontend;
mod publisher;
pub mod records;
mod worker;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, RwLock},
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::worker::{Identity, Role, Worker};
use self::{file_store::FileStore, publisher::Publisher};

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Dynamo namespace of every worker.
    pub namespace: String,
    /// The one model that is served.
    pub model: String,
    /// Prefill workers.
    pub prefill: u32,
    /// Decode workers.
    pub decode: u32,
    /// Aggregated workers.
    pub aggregated: u32,
    /// Data-parallel ranks of each worker.
    pub ranks: u32,
    /// Root of the file store to register in (`DYN_FILE_KV` of a real fleet).
    pub store: PathBuf,
    /// Where frontends listen; port 0 takes a free one.
    pub frontends: Vec<SocketAddr>,
    /// How fast the engines are.
    pub pace: Pace,
}

/// Speed of the simulated engines.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Prompt tokens read per second.
    pub prefill_tokens_per_second: u64,
    /// Time between two generated tokens.
    pub token: Duration,
}

impl Pace {
    fn prefill(self, tokens: u64) -> Duration {
        Duration::from_micros(tokens.saturating_mul(1_000_000) / self.prefill_tokens_per_second.max(1))
    }
}

/// The workers, as frontends see them.
#[derive(Debug)]
pub struct Fleet {
    workers: RwLock<Vec<Arc<Worker>>>,
    pace: Pace,
}

impl Fleet {
    /// The workers that are registered now.
    #[must_use]
    pub fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers
            .read()
            .map(|workers| workers.clone())
            .unwrap_or_default()
    }

    fn pace(&self) -> Pace {
        self.pace
    }
}

/// A running simulation.
#[derive(Debug)]
pub struct Sim {
    fleet: Arc<Fleet>,
    store: FileStore,
    addresses: Vec<SocketAddr>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Sim {
    /// Starts publishers and frontends, then registers the workers.
    ///
    /// # Errors
    /// When an address cannot be bound or the store cannot be written.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let fleet = Arc::new(Fleet {
            workers: RwLock::default(),
            pace: settings.pace,
        });
        let mut sim = Self {
            fleet,
            store: FileStore::new(&settings.store),
            addresses: Vec::new(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        for address in &settings.frontends {
            sim.listen(*address).await?;
        }
        let roles = [
            (Role::Prefill, settings.prefill),
            (Role::Decode, settings.decode),
            (Role::Aggregated, settings.aggregated),
        ];
        for (role, count) in roles {
            for index in 0..count {
                sim.join(Identity {
                    namespace: settings.namespace.clone(),
                    model: settings.model.clone(),
                    role,
                    instance: instance_id(role, index),
                    ranks: settings.ranks,
                })
                .await?;
            }
        }
        sim.keep_alive();
        Ok(sim)
    }

    /// Where the frontends listen, in the order of the settings.
    #[must_use]
    pub fn frontends(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The fleet.
    #[must_use]
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Adds a worker.
    ///
    /// # Errors
    /// When its publisher cannot listen or its records cannot be written.
    pub async fn join(&mut self, who: Identity) -> io::Result<Arc<Worker>> {
        let worker = Arc::new(Worker::new(who));
        worker.publish_through(Publisher::bind(worker.publisher, &mut self.tasks, self.stop.clone()).await?);
        if let Ok(mut workers) = self.fleet.workers.write() {
            workers.push(worker.clone());
        }
        for record in records::of_worker(&worker) {
            self.store.put(&record)?;
        }
        Ok(worker)
    }

    /// Removes a worker the polite way: its records first, then the worker; running streams finish.
    ///
    /// # Errors
    /// When a record cannot be deleted.
    pub fn leave(&mut self, instance: u64) -> io::Result<()> {
        let leaving = self.fleet.workers().into_iter().find(|w| w.instance == instance);
        let Some(worker) = leaving else { return Ok(()) };
        for record in records::of_worker(&worker).iter().rev() {
            self.store.delete(record)?;
        }
        if let Ok(mut workers) = self.fleet.workers.write() {
            workers.retain(|w| w.instance != instance);
        }
        Ok(())
    }

    /// Deletes the records, then ends every task.
    pub async fn stop(mut self) {
        for worker in self.fleet.workers() {
            for record in records::of_worker(&worker).iter().rev() {
                let _already_gone = self.store.delete(record);
            }
        }
        self.stop.cancel();
        self.tasks.shutdown().await;
    }

    async fn listen(&mut self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        self.addresses.push(listener.local_addr()?);
        let (fleet, stop) = (self.fleet.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    accepted = listener.accept() => {
                        let Ok((socket, _)) = accepted else {
                            // Out of files: without a pause this would be all that the process does.
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                            continue;
                        };
                        let _best_effort = socket.set_nodelay(true);
                        let fleet = fleet.clone();
                        connections.spawn(async move {
                            let service = service_fn(move |request| frontend::serve(fleet.clone(), request));
                            let _closed = hyper::server::conn::http1::Builder::new()
                                .serve_connection(TokioIo::new(socket), service)
                                .await;
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(())
    }

    /// Touches the files of living workers; those of a killed one age until readers drop them.
    fn keep_alive(&mut self) {
        let (fleet, store, stop) = (self.fleet.clone(), self.store.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let mut every = tokio::time::interval(file_store::KEEP_ALIVE);
            while stop.run_until_cancelled(every.tick()).await.is_some() {
                for worker in fleet.workers().iter().filter(|w| w.is_alive()) {
                    for record in records::of_worker(worker) {
                        let _leaving_now = store.touch(&record);
                    }
                }
            }
        });
    }
}

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Stable ids, so that two runs of a demonstration look alike. Above 2^53, as those of a real file store.
fn instance_id(role: Role, index: u32) -> u64 {
    let kind: u64 = match role {
        Role::Prefill => 0xa000_0000_0000_0000,
        Role::Decode => 0xb000_0000_0000_0000,
        Role::Aggregated => 0xc000_0000_0000_0000,
    };
    kind | (u64::from(index) + 1)
}
