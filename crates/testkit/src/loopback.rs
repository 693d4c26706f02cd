//! A publisher on the loopback interface, by an independent ZeroMQ implementation.

use bytes::Bytes;
use continuum_fleet::ids::PublisherId;
use continuum_wire::{
    ActiveLoad, envelope,
    router_event::{self, RouterEvent},
};
use zeromq::{PubSocket, Socket as _, SocketSend as _, ZmqMessage};

const KV_EVENTS: &str = "kv-events";

/// One publisher object as Dynamo runs it: an id, a sequence from 0, a PUB socket on a free port.
pub struct Loopback {
    socket: PubSocket,
    /// `tcp://127.0.0.1:port`.
    pub endpoint: String,
    /// Its id.
    pub id: PublisherId,
    /// The number of the next message.
    pub sequence: u64,
    /// Frame 1: the bare topic, or a broker's subject.
    pub first_frame: String,
}

impl Loopback {
    /// Binds a direct publisher of `kv_metrics`.
    pub async fn bind(id: u64) -> Self {
        let mut socket = PubSocket::new();
        let endpoint = socket
            .bind("tcp://127.0.0.1:0")
            .await
            .expect("a free loopback port")
            .to_string();
        Self {
            socket,
            endpoint,
            id: PublisherId::new(id),
            sequence: 0,
            first_frame: "kv_metrics".to_owned(),
        }
    }

    /// Binds a broker's XPUB side that relays this publisher under a subject.
    pub async fn bind_broker(id: u64, subject: &str) -> Self {
        Self {
            first_frame: subject.to_owned(),
            ..Self::bind(id).await
        }
    }

    /// Publishes a sample under the next number. PUB sockets drop what nobody has subscribed to.
    pub async fn publish(&mut self, load: &ActiveLoad) {
        let frames = self.frames(load);
        self.sequence += 1;
        self.send(&frames).await;
    }

    /// The frames that [`Self::publish`] would send.
    #[must_use]
    pub fn frames(&self, load: &ActiveLoad) -> [Vec<u8>; 4] {
        envelope::encode(
            self.first_frame.as_bytes(),
            "kv_metrics",
            self.id,
            self.sequence,
            1_790_000_000_000,
            &load.encode(),
        )
    }

    /// Binds a direct publisher of `kv-events`.
    pub async fn bind_events(id: u64) -> Self {
        Self {
            first_frame: KV_EVENTS.to_owned(),
            ..Self::bind(id).await
        }
    }

    /// Publishes block events in one message.
    pub async fn publish_events(&mut self, events: &[RouterEvent]) {
        let payload = router_event::encode(events);
        let (first_frame, sequence) = (self.first_frame.as_bytes(), self.sequence);
        let frames = envelope::encode(
            first_frame,
            KV_EVENTS,
            self.id,
            sequence,
            1_790_000_000_000,
            &payload,
        );
        self.sequence += 1;
        self.send(&frames).await;
    }

    /// Publishes any frames.
    pub async fn send(&mut self, frames: &[Vec<u8>]) {
        let frames: Vec<Bytes> = frames.iter().cloned().map(Bytes::from).collect();
        let message = ZmqMessage::try_from(frames).expect("a message has frames");
        self.socket.send(message).await.expect("PUB sockets always send");
    }
}
