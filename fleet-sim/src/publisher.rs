//! The event socket of a simulated worker: a ZMTP publisher on a free port, for topic `kv_metrics`.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use continuum_fleet::{
    ids::{InstanceId, PublisherId, Rank},
    view::Topic,
};
use continuum_wire::{ActiveLoad, envelope, zmtp};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

/// Messages that a slow subscriber may lag behind before it misses some, as a ZMQ high-water mark does.
const HIGH_WATER_MARK: usize = 1024;
/// Read buffer of a connection, in bytes: subscribers only send commands.
const READ_BUFFER_BYTES: usize = 512;

type Frames = Arc<[Vec<u8>]>;

/// Publishes the load of one worker.
#[derive(Debug)]
pub(crate) struct Publisher {
    id: u64,
    port: u16,
    sequence: AtomicU64,
    messages: broadcast::Sender<Frames>,
}

impl Publisher {
    /// Listens on a free port of 127.0.0.1; connections live in `tasks` until `stop`.
    pub(crate) async fn bind(id: u64, tasks: &mut JoinSet<()>, stop: CancellationToken) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (messages, _) = broadcast::channel(HIGH_WATER_MARK);
        let feed = messages.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    accepted = listener.accept() => {
                        let Ok((socket, _)) = accepted else { continue };
                        connections.spawn(serve(socket, feed.subscribe()));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            id,
            port,
            sequence: AtomicU64::new(0),
            messages,
        })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Publishes the used blocks of a rank; nobody listening is not an error.
    pub(crate) fn publish(&self, worker: u64, rank: u32, used: u64) {
        let sample = ActiveLoad {
            worker: InstanceId::new(worker),
            rank: Rank(rank),
            active_decode_blocks: None,
            active_prefill_tokens: None,
            kv_used_blocks: Some(used),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let frames = envelope::encode(
            Topic::KvMetrics.as_str().as_bytes(),
            Topic::KvMetrics.as_str(),
            PublisherId::new(self.id),
            sequence,
            u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            &sample.encode(),
        );
        let _nobody_listens = self.messages.send(Arc::new(frames));
    }
}

async fn serve(mut socket: TcpStream, mut messages: broadcast::Receiver<Frames>) {
    let mut peer = zmtp::Publisher::new();
    let mut buffer = [0; READ_BUFFER_BYTES];
    loop {
        while !peer.outgoing().is_empty() {
            match socket.write(peer.outgoing()).await {
                Ok(sent @ 1..) => peer.sent(sent),
                _ => return,
            }
        }
        tokio::select! {
            read = socket.read(&mut buffer) => {
                let Ok(count @ 1..) = read else { return };
                if peer.push(buffer.get(..count).unwrap_or_default()).is_err() {
                    return;
                }
            }
            message = messages.recv() => match message {
                Ok(frames) => { peer.publish(&frames); }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
        }
    }
}
