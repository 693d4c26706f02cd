//! Peers and sinks for the tests of this crate.

use std::sync::{Arc, Mutex};

use continuum_fleet::ids::{InstanceId, Namespace, PublisherId, Rank};
use continuum_routing::load::Applied;
use continuum_wire::{ActiveLoad, envelope, zmtp};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::mpsc,
};

use crate::{
    connector::{Connecting, Connector, Error, Stream, Target},
    sink::LoadSink,
};

/// What a sink was told, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Apply(PublisherId, u64, Option<u64>),
    Forget(PublisherId),
    Subscribed(PublisherId, bool),
    Covers(String, bool),
}

/// A sink that remembers.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    told: Mutex<Vec<Told>>,
}

impl Recorder {
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    fn tell(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }
}

impl LoadSink for Recorder {
    fn apply(&self, publisher: PublisherId, _: &Namespace, sequence: u64, load: &ActiveLoad) -> Applied {
        self.tell(Told::Apply(publisher, sequence, load.kv_used_blocks));
        Applied::Applied
    }

    fn forget(&self, publisher: PublisherId) {
        self.tell(Told::Forget(publisher));
    }

    fn subscribed(&self, publisher: PublisherId, live: bool) {
        self.tell(Told::Subscribed(publisher, live));
    }

    fn broker_covers(&self, namespace: &Namespace, live: bool) {
        self.tell(Told::Covers(namespace.to_string(), live));
    }
}

/// A PUB peer on one end of a pipe.
pub(crate) struct Peer {
    pub(crate) stream: DuplexStream,
    publisher: zmtp::Publisher,
}

impl Peer {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        Self {
            stream,
            publisher: zmtp::Publisher::new(),
        }
    }

    /// Answers until the subscriber has asked for a message that begins so.
    pub(crate) async fn until_wanted(&mut self, first_frame: &[u8]) {
        while !self.publisher.wants(first_frame) {
            self.flush().await;
            assert!(self.read().await > 0, "subscriber left before it subscribed");
        }
    }

    /// Answers whatever the subscriber says, until it leaves.
    pub(crate) async fn serve(&mut self) {
        loop {
            self.flush().await;
            if self.read().await == 0 {
                return;
            }
        }
    }

    pub(crate) async fn publish(&mut self, frames: &[Vec<u8>]) {
        assert!(self.publisher.publish(frames), "nobody wants it");
        self.flush().await;
    }

    async fn read(&mut self) -> usize {
        let mut buffer = [0; 512];
        let count = self.stream.read(&mut buffer).await.unwrap_or(0);
        self.publisher
            .push(&buffer[..count])
            .expect("our subscriber keeps the protocol");
        count
    }

    async fn flush(&mut self) {
        let bytes = self.publisher.outgoing().to_vec();
        if self.stream.write_all(&bytes).await.is_ok() {
            self.publisher.sent(bytes.len());
        }
    }
}

/// A connector whose peers a test plays. Without an open offer it refuses the connection.
#[derive(Debug)]
pub(crate) struct Scripted {
    offers: Mutex<Vec<DuplexStream>>,
    tries: mpsc::UnboundedSender<tokio::time::Instant>,
}

impl Scripted {
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<tokio::time::Instant>) {
        let (tries, seen) = mpsc::unbounded_channel();
        (
            Arc::new(Self {
                offers: Mutex::default(),
                tries,
            }),
            seen,
        )
    }

    /// Lets the next connection succeed; returns its other end.
    pub(crate) fn offer(&self) -> Peer {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.offers.lock().unwrap().push(theirs);
        Peer::new(ours)
    }
}

impl Connector for Scripted {
    fn connect<'a>(&'a self, _: &'a Target) -> Connecting<'a> {
        self.tries.send(tokio::time::Instant::now()).unwrap();
        let stream = self.offers.lock().unwrap().pop();
        Box::pin(async {
            match stream {
                Some(stream) => Ok(Box::new(stream) as Box<dyn Stream>),
                None => Err(Error::Connect(std::io::ErrorKind::ConnectionRefused.into())),
            }
        })
    }
}

pub(crate) fn load(blocks: u64) -> ActiveLoad {
    ActiveLoad {
        worker: InstanceId::new(0xa),
        rank: Rank(0),
        active_decode_blocks: None,
        active_prefill_tokens: None,
        kv_used_blocks: Some(blocks),
    }
}

pub(crate) fn message(publisher: u64, sequence: u64, blocks: u64) -> [Vec<u8>; 4] {
    let id = PublisherId::new(publisher);
    envelope::encode(
        b"kv_metrics",
        "kv_metrics",
        id,
        sequence,
        0,
        &load(blocks).encode(),
    )
}
