//! Addresses: where to listen, where a backend is, where etcd is.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::value::text_form;

text_form! {
    /// A listening address.
    BindAddressText, "bind address", "bind-address", "^(unix:/.+|[^/]+:[0-9]{1,5})$", "127.0.0.1:0"
}
text_form! {
    /// A backend's URL.
    BackendUrlText, "backend URL", "backend-url", "^(https?://[^/?#@]+/?|unix:/.+)$", "http://127.0.0.1:1"
}
text_form! {
    /// A network endpoint.
    EndpointText, "endpoint", "endpoint", "^(https?://)?[^/?#@]+:[0-9]{1,5}$", "127.0.0.1:1"
}
text_form! {
    /// A broker's endpoint.
    TcpEndpointText, "tcp endpoint", "tcp-endpoint", "^tcp://[^/?#@]+:[0-9]{1,5}$", "tcp://127.0.0.1:1"
}
text_form! {
    /// An IP address with a port.
    SocketText, "IP address and port", "socket", "^[^/]+:[0-9]{1,5}$", "127.0.0.1:1"
}

/// Why a text is not an address. The text itself is not repeated: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Something like `ftp://`.
    #[error("use http:// or https://")]
    Scheme,
    /// Anything but `tcp://`.
    #[error("write tcp://host:port")]
    NotTcp,
    /// `user@host` or `user:password@host`.
    #[error(
        "credentials in a URL end up in logs; remove the part before \"@\" and use the fields made for them"
    )]
    UserInfo,
    /// A `?`, even with nothing behind it.
    #[error("remove the query (\"?\" and what follows)")]
    Query,
    /// A `#`, even with nothing behind it.
    #[error("remove the fragment (\"#\" and what follows)")]
    Fragment,
    /// A `/` behind the authority.
    #[error("remove the path (\"/\" and what follows): the router adds the paths itself")]
    Path,
    /// No host, or characters that no host has.
    #[error("name a host (an IPv6 address stands in brackets: [::1])")]
    Host,
    /// No port where one is needed.
    #[error("add a port (host:port)")]
    NoPort,
    /// A port that is no number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// A Unix socket without an absolute path.
    #[error("give the socket's absolute path: unix:/run/router.sock")]
    Socket,
    /// A listening address whose host is a name.
    #[error("listen on an IP address (0.0.0.0:8080, [::]:8080, 127.0.0.1:8080) or on unix:/path")]
    NotAnAddress,
}

/// Where the router listens: an IP address with a port, or `unix:` and an absolute path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BindAddress {
    /// A TCP socket. Port 0 asks the system for a free one.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl BindAddress {
    /// Reads `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` or `unix:/run/router.sock`.
    ///
    /// # Errors
    /// Why the text is no such address.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path).map(Self::Unix);
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().map(Self::Tcp).map_err(|_| UrlError::NotAnAddress)
    }

    /// True when only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `http://` or `https://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// `http` or `https`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Where a backend is. URLs carry no path: the router forwards the client's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendUrl {
    /// Over TCP.
    Tcp {
        /// Plain or TLS.
        scheme: Scheme,
        /// A name or an IP address, IPv6 without its brackets.
        host: Box<str>,
        /// The port; 80 or 443 where the URL has none.
        port: u16,
    },
    /// Over a Unix socket, in plain HTTP.
    Unix(PathBuf),
}

impl BackendUrl {
    /// Reads `http://host:8000`, `https://host` or `unix:/run/frontend.sock`; one trailing `/` is fine.
    ///
    /// # Errors
    /// Why the text is no such URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path).map(Self::Unix);
        }
        let (scheme, rest) = split_scheme(text)?;
        let scheme = scheme.ok_or(UrlError::Scheme)?;
        let (host, port) = split_authority(rest.strip_suffix('/').unwrap_or(rest))?;
        let port = port.unwrap_or(match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        });
        Ok(Self::Tcp {
            scheme,
            host: host.into(),
            port,
        })
    }

    /// `host:port` as a `Host` header has it (brackets around IPv6, no default port); `localhost` for a socket.
    #[must_use]
    pub fn authority(&self) -> String {
        match self {
            Self::Tcp {
                scheme: Scheme::Http,
                host,
                port: 80,
            }
            | Self::Tcp {
                scheme: Scheme::Https,
                host,
                port: 443,
            } => bracketed(host),
            Self::Tcp { host, port, .. } => format!("{}:{port}", bracketed(host)),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { scheme, .. } => write!(f, "{}://{}", scheme.as_str(), self.authority()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An endpoint of etcd: `http(s)://host:port` or `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The scheme that was written; `None` for `host:port`.
    pub scheme: Option<Scheme>,
    /// A name or an IP address, IPv6 without its brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// Reads `http(s)://host:port` or `host:port`, IPv6 in brackets, and nothing more.
    ///
    /// # Errors
    /// Why the text is no such endpoint.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = split_scheme(text)?;
        let (host, port) = split_authority(rest)?;
        Ok(Self {
            scheme,
            host: host.into(),
            port: port.ok_or(UrlError::NoPort)?,
        })
    }

    /// `host:port`, IPv6 in brackets.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.as_str())?;
        }
        f.write_str(&self.authority())
    }
}

/// A broker's endpoint: `tcp://host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TcpEndpoint {
    /// A name or an IP address, IPv6 without its brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl TcpEndpoint {
    /// Reads `tcp://host:port`, IPv6 in brackets, and nothing more.
    ///
    /// # Errors
    /// Why the text is no such endpoint.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("tcp://").ok_or(UrlError::NotTcp)?;
        let (host, port) = split_authority(rest)?;
        Ok(Self {
            host: host.into(),
            port: port.ok_or(UrlError::NoPort)?,
        })
    }
}

impl fmt::Display for TcpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}:{}", bracketed(&self.host), self.port)
    }
}

fn socket_path(path: &str) -> Result<PathBuf, UrlError> {
    // The kernel takes 107 bytes of path and a final zero.
    if path.starts_with('/') && path.len() > 1 && path.len() <= 107 && !path.contains('\0') {
        Ok(PathBuf::from(path))
    } else {
        Err(UrlError::Socket)
    }
}

fn split_scheme(text: &str) -> Result<(Option<Scheme>, &str), UrlError> {
    if let Some(rest) = strip_prefix_ignore_case(text, "http://") {
        Ok((Some(Scheme::Http), rest))
    } else if let Some(rest) = strip_prefix_ignore_case(text, "https://") {
        Ok((Some(Scheme::Https), rest))
    } else if text.contains("://") {
        Err(UrlError::Scheme)
    } else {
        Ok((None, text))
    }
}

fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Host and port of an authority that stands alone. The order of the checks decides which advice is given.
fn split_authority(text: &str) -> Result<(&str, Option<u16>), UrlError> {
    if text.contains('@') {
        return Err(UrlError::UserInfo);
    }
    if text.contains('?') {
        return Err(UrlError::Query);
    }
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    if text.contains('/') {
        return Err(UrlError::Path);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(UrlError::Host)?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(UrlError::Host);
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(parse_port(port)?))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(UrlError::Host),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.is_empty() || host.len() > 253 || !host.bytes().all(fine) {
        return Err(UrlError::Host);
    }
    if port.is_some_and(|port| port.contains(':')) {
        return Err(UrlError::Host);
    }
    Ok((host, port.map(parse_port).transpose()?))
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UrlError::Port);
    }
    text.parse().ok().filter(|port| *port != 0).ok_or(UrlError::Port)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

macro_rules! as_text {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(from)?).map_err(de::Error::custom)
            }
        }
    )+};
}
as_text!(BindAddress, BackendUrl, Endpoint, TcpEndpoint);

#[cfg(test)]
mod tests;
