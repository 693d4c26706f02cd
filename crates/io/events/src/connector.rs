//! How a publisher is reached.
//!
//! An endpoint is text that somebody wrote into a registry. Its host is resolved once for a connection, and
//! only addresses that passed the check are connected to: nothing between check and connect can change them.

use std::{
    fmt,
    future::{Future, pending},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use continuum_config::value::TcpEndpoint;
use continuum_fleet::{
    ids::{Namespace, PublisherId},
    view::Topic,
};
use continuum_runtime::lookup::Lookups;
use ipnet::IpNet;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{Semaphore, watch},
    time::timeout,
};

use crate::{
    limits::{CONNECT_TIMEOUT, KEEPALIVE_EVERY, KEEPALIVE_PROBES, MAX_ADDRESSES, MAX_CONNECTS, MAX_LOOKUPS},
    settings::Settings,
};

/// Something that bytes flow through.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What is to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is subscribed to.
    pub family: Topic,
    /// Namespace of the publisher's scope; `None` for a broker of several.
    pub namespace: Option<Namespace>,
    /// The publisher; `None` for a broker.
    pub publisher: Option<PublisherId>,
    /// `tcp://host:port`, as advertised.
    pub endpoint: Arc<str>,
}

/// A connection under way.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, Error>> + Send + 'a>>;

/// Opens a byte stream to a publisher.
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Connects. The caller sets no deadline: the connector keeps its own.
    fn connect<'a>(&'a self, target: &'a Target) -> Connecting<'a>;
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The endpoint is not `tcp://host:port`.
    #[error("endpoint is not tcp://host:port")]
    Endpoint,
    /// The host has no address.
    #[error("host does not resolve: {0}")]
    Resolve(#[source] io::Error),
    /// No address of the host lies in an allowed network.
    #[error("no address in dynamo.load.direct_allow_cidrs")]
    NotAllowed,
    /// Every allowed address failed; this is the last failure.
    #[error("does not connect: {0}")]
    Connect(#[source] io::Error),
    /// Not resolved and connected in time.
    #[error("not connected in time")]
    Timeout,
}

impl Error {
    /// Whether the endpoint itself is refused, rather than out of reach for the moment.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Endpoint | Self::NotAllowed => true,
            Self::Resolve(_) | Self::Connect(_) | Self::Timeout => false,
        }
    }
}

/// Connects to the advertised address over TCP.
#[derive(Clone, Debug)]
pub struct Direct {
    settings: watch::Receiver<Settings>,
    connects: Arc<Semaphore>,
    lookups: Lookups,
}

impl Direct {
    /// With networks, only addresses within them are connected to; without, all are.
    #[must_use]
    pub fn new(allowed: impl Into<Arc<[IpNet]>>) -> Self {
        let settings = Settings {
            allowed: allowed.into(),
            ..Settings::default()
        };
        Self::following(watch::channel(settings).1)
    }

    /// The networks are those of the settings at any time: a connection to an address that is forbidden later ends.
    #[must_use]
    pub fn following(settings: watch::Receiver<Settings>) -> Self {
        Self {
            settings,
            connects: Arc::new(Semaphore::new(MAX_CONNECTS)),
            lookups: Lookups::new(MAX_LOOKUPS),
        }
    }

    async fn open(&self, endpoint: &str) -> Result<Fenced, Error> {
        let endpoint = TcpEndpoint::parse(endpoint).map_err(|_| Error::Endpoint)?;
        let addresses = self.resolve(&endpoint).await?;
        let networks = Arc::clone(&self.settings.borrow().allowed);
        let is_allowed = |address: &SocketAddr| allows(&networks, address.ip());
        let allowed: Vec<_> = addresses
            .into_iter()
            .filter(is_allowed)
            .take(MAX_ADDRESSES)
            .collect();
        // An address that swallows packets must not use up the time of the others.
        let share = CONNECT_TIMEOUT / u32::try_from(allowed.len()).unwrap_or(1).max(1);
        let mut last = Error::NotAllowed;
        for address in allowed {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let forbidden = forbidden(address.ip(), self.settings.clone());
                    return Ok(Fenced {
                        stream: tuned(stream).map_err(Error::Connect)?,
                        forbidden: Box::pin(forbidden),
                    });
                }
                Ok(Err(error)) => last = Error::Connect(error),
                Err(_) => last = Error::Timeout,
            }
        }
        Err(last)
    }

    async fn resolve(&self, endpoint: &TcpEndpoint) -> Result<Vec<SocketAddr>, Error> {
        if let Ok(ip) = endpoint.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, endpoint.port)]);
        }
        self.lookups
            .look_up(endpoint.host.clone().into(), endpoint.port)
            .await
            .map_err(Error::Resolve)
    }
}

impl Connector for Direct {
    fn connect<'a>(&'a self, target: &'a Target) -> Connecting<'a> {
        Box::pin(async {
            // Waiting for a turn is no fault of the peer and takes none of its time.
            let _turn = self.connects.acquire().await.map_err(|_| Error::Timeout)?;
            match timeout(CONNECT_TIMEOUT, self.open(&target.endpoint)).await {
                Ok(opened) => opened.map(|stream| Box::new(stream) as Box<dyn Stream>),
                Err(_) => Err(Error::Timeout),
            }
        })
    }
}

/// A stream that breaks when its address is allowed no more.
struct Fenced {
    stream: TcpStream,
    forbidden: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl AsyncRead for Fenced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.forbidden.as_mut().poll(cx).is_ready() {
            let reason = "its address is not in dynamo.load.direct_allow_cidrs any more";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Fenced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Waits until an address is allowed no more, which may be now. Nothing is to be asked of it afterwards.
async fn forbidden(ip: IpAddr, mut settings: watch::Receiver<Settings>) {
    while allows(&settings.borrow_and_update().allowed, ip) {
        if settings.changed().await.is_err() {
            // Nobody can change the settings any more.
            pending::<()>().await;
        }
    }
}

fn allows(networks: &[IpNet], ip: IpAddr) -> bool {
    // `::ffff:10.0.0.7` is 10.0.0.7.
    let ip = ip.to_canonical();
    networks.is_empty() || networks.iter().any(|network| network.contains(&ip))
}

fn tuned(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_EVERY)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_PROBES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
