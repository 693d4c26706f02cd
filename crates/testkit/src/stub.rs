//! A scripted HTTP/1.1 server: it answers byte for byte what a test wants, at the moment the test wants it, and
//! dies as the test wants it. It says what it was sent and how many connections are open.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Header fields, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Which connection it came on; the first is 0.
    pub connection: usize,
    /// Which request of its connection it is, model lists and health checks included; the first is 0.
    pub nth: usize,
}

impl Seen {
    /// The value of a header, or nothing.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// One step of an answer. After the last step the connection waits for the next request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Bytes as they are.
    Send(Vec<u8>),
    /// Wait until the gate opens.
    Hold(Gate),
    /// Wait until the peer closes its side, then close.
    UntilPeerLeaves,
    /// Reset the connection (a Unix socket is closed).
    Reset,
    /// Close the connection.
    Close,
}

/// A whole answer with a length.
#[must_use]
pub fn answer(status: u16, content_type: &str, body: &str) -> Vec<Act> {
    let head = format!(
        "HTTP/1.1 {status} Answer\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    vec![Act::Send(head.into_bytes())]
}

/// A whole JSON answer.
#[must_use]
pub fn json(status: u16, body: &str) -> Vec<Act> {
    answer(status, "application/json", body)
}

/// The head of a stream of events.
#[must_use]
pub fn stream_head() -> Act {
    Act::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    )
}

/// One chunk of a body that was announced as chunked.
#[must_use]
pub fn chunk(text: &str) -> Act {
    Act::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// The end of a chunked body.
#[must_use]
pub fn last_chunk() -> Act {
    Act::Send(b"0\r\n\r\n".to_vec())
}

/// A whole stream of events, each in a chunk of its own.
#[must_use]
pub fn stream(events: &[&str]) -> Vec<Act> {
    let events = events.iter().map(|event| chunk(&format!("data: {event}\n\n")));
    std::iter::once(stream_head())
        .chain(events)
        .chain([last_chunk()])
        .collect()
}

/// Opens once, for all who wait.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Gate {
    /// Opens it.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn passed(&self) {
        // The sender lives as long as `self`.
        let mut open = self.0.subscribe();
        let _open = open.wait_for(|open| *open).await;
    }
}

type Handler = dyn Fn(&Seen) -> Vec<Act> + Send + Sync;

/// The server. Dropping it closes everything.
pub struct Stub {
    url: String,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    handler: Box<Handler>,
    models: Mutex<Vec<String>>,
    healthy: Mutex<u16>,
    seen: Mutex<Vec<Seen>>,
    /// Requests answered, of every kind.
    served: watch::Sender<usize>,
    open: watch::Sender<BTreeSet<usize>>,
}

impl Stub {
    /// Listens on a free port of the loopback address. `handler` answers everything but `GET /v1/models` and
    /// `GET /health`, which are neither recorded nor shown to it.
    ///
    /// # Errors
    /// No socket.
    pub async fn tcp(handler: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Self::start(url, handler, Listener::Tcp(listener)))
    }

    /// Listens on a Unix socket.
    ///
    /// # Errors
    /// No socket.
    pub fn unix(
        path: &Path,
        handler: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let url = format!("unix:{}", path.display());
        Ok(Self::start(url, handler, Listener::Unix(listener)))
    }

    fn start(
        url: String,
        handler: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
        listener: Listener,
    ) -> Self {
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            models: Mutex::default(),
            healthy: Mutex::new(200),
            seen: Mutex::default(),
            served: watch::Sender::new(0),
            open: watch::Sender::new(BTreeSet::new()),
        });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            let mut count = 0;
            while let Ok(socket) = listener.accept().await {
                let connection = count;
                count += 1;
                serving.open.send_modify(|open| {
                    open.insert(connection);
                });
                let shared = Open(Arc::clone(&serving), connection);
                connections.spawn(async move {
                    // A broken connection is what many scripts are about.
                    let _ended = converse(socket, &shared.0, connection).await;
                });
                while connections.try_join_next().is_some() {}
            }
        })
        .abort_handle();
        Self {
            url,
            shared,
            accepting,
        }
    }

    /// Its URL as a configuration spells it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it answers to `GET /v1/models`; nothing at first.
    pub fn list_models(&self, names: &[&str]) {
        *lock(&self.shared.models) = names.iter().map(|name| (*name).to_owned()).collect();
    }

    /// The status of `GET /health`; 200 at first.
    pub fn set_health(&self, status: u16) {
        *lock(&self.shared.healthy) = status;
    }

    /// What has arrived, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Waits until a connection is closed. It must have been open before.
    pub async fn until_closed(&self, connection: usize) {
        let mut open = self.shared.open.subscribe();
        let _closed = open.wait_for(|open| !open.contains(&connection)).await;
    }

    /// Waits until as many connections are open as `wanted` says at that moment.
    pub async fn until_open(&self, wanted: impl Fn() -> usize) {
        let mut open = self.shared.open.subscribe();
        let _reached = open.wait_for(|open| open.len() == wanted()).await;
    }

    /// Waits until as many requests have arrived, model lists and health checks not counted.
    pub async fn until_seen(&self, wanted: usize) {
        let mut served = self.shared.served.subscribe();
        while lock(&self.shared.seen).len() < wanted {
            if served.changed().await.is_err() {
                return;
            }
        }
    }

    /// A number that changes with every request of any kind.
    #[must_use]
    pub fn served(&self) -> watch::Receiver<usize> {
        self.shared.served.subscribe()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (socket, _) = listener.accept().await?;
                socket.set_nodelay(true)?;
                Ok(Socket::Tcp(socket))
            }
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
        }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Counts a connection for as long as its task lives.
struct Open(Arc<Shared>, usize);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| {
            open.remove(&self.1);
        });
    }
}

async fn converse(socket: Socket, shared: &Shared, connection: usize) -> io::Result<()> {
    match socket {
        Socket::Tcp(mut socket) => {
            if speak(&mut socket, shared, connection).await? {
                socket.set_zero_linger()?;
            }
        }
        Socket::Unix(mut socket) => {
            speak(&mut socket, shared, connection).await?;
        }
    }
    Ok(())
}

/// Answers until the connection is over; tells whether it is to be reset.
async fn speak(
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: &Shared,
    connection: usize,
) -> io::Result<bool> {
    let mut buffer = Vec::new();
    let mut nth = 0;
    while let Some(seen) = read_request(socket, &mut buffer, connection, nth).await? {
        nth += 1;
        for act in script(shared, seen) {
            match act {
                Act::Send(bytes) => socket.write_all(&bytes).await?,
                Act::Hold(gate) => gate.passed().await,
                Act::UntilPeerLeaves => {
                    let mut sink = [0; 1024];
                    while socket.read(&mut sink).await? > 0 {}
                    return Ok(false);
                }
                Act::Reset => return Ok(true),
                Act::Close => return Ok(false),
            }
        }
    }
    Ok(false)
}

fn script(shared: &Shared, seen: Seen) -> Vec<Act> {
    let acts = match (seen.method.as_str(), seen.target.as_str()) {
        ("GET", "/v1/models") => {
            let mut list = String::from(r#"{"object":"list","data":["#);
            for (index, name) in lock(&shared.models).iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                // Writing to a String cannot fail.
                let _written = write!(
                    list,
                    r#"{comma}{{"id":{}}}"#,
                    serde_json::Value::from(name.as_str())
                );
            }
            json(200, &(list + "]}"))
        }
        ("GET", "/health") => json(*lock(&shared.healthy), r#"{"status":"stub"}"#),
        _ => {
            let acts = (shared.handler)(&seen);
            lock(&shared.seen).push(seen);
            acts
        }
    };
    shared.served.send_modify(|served| *served += 1);
    acts
}

async fn read_request(
    socket: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    connection: usize,
    nth: usize,
) -> io::Result<Option<Seen>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head: Vec<u8> = buffer.drain(..head_end).collect();
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok());
    let length: usize = length.unwrap_or(0);
    while buffer.len() < length {
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer.drain(..length).collect();
    Ok(Some(Seen {
        method,
        target,
        headers,
        body,
        connection,
        nth,
    }))
}
