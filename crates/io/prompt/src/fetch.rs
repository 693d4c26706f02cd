//! Fetching a file: from this machine, from a worker's metadata server, or from the Hugging Face Hub.
//!
//! Whoever wrote the card chose the place, so nothing is believed of it: a file is read up to the cap and no further,
//! within a time, and its content is compared with the checksum by the caller. A worker's server is not followed to
//! another; the Hub is, to its storage, and the token goes to the Hub alone.

use std::{io::Read as _, os::unix::fs::OpenOptionsExt as _, path::Path, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::OnceCell,
    task::spawn_blocking,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    artifact::Origin,
    limits::{CONNECT_TIMEOUT, FETCH_TIMEOUT, MAX_REDIRECTS},
};

/// Where the Hugging Face Hub is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Hub {
    /// `HF_ENDPOINT`.
    pub endpoint: String,
    /// `HF_TOKEN`.
    pub token: Option<String>,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
        }
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// What may be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// From http and https addresses of cards.
    pub http: bool,
    /// From the Hub.
    pub hub: bool,
    /// The largest file in bytes.
    pub cap: u64,
}

/// Why a file could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not allow this kind of place.
    #[error("files from {0} are not allowed by the configuration")]
    Disabled(&'static str),
    /// A kind of place that is not known here.
    #[error("the place is of a kind that is not supported")]
    Unsupported,
    /// Over the cap.
    #[error("the file is larger than {0} bytes")]
    TooLarge(u64),
    /// It is a directory, a device or a pipe.
    #[error("it is no regular file")]
    NoFile,
    /// It could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The address, or where it redirects to, is not one that is asked.
    #[error("the address cannot be asked")]
    Address,
    /// The server answered something else.
    #[error("the server answered {0}")]
    Status(http::StatusCode),
    /// The server is not the one that is meant, or nobody could tell.
    #[error("no TLS connection: {0}")]
    Tls(String),
    /// The connection broke, or the answer is none.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("no answer in time")]
    Late,
}

/// The content of a file.
///
/// # Errors
/// See [`Error`].
pub async fn fetch(origin: &Origin, rules: &Rules, hub: &Hub) -> Result<Bytes, Error> {
    match origin {
        Origin::Local(path) => {
            let (path, cap) = (path.clone(), rules.cap);
            match spawn_blocking(move || read(&path, cap)).await {
                Ok(content) => content,
                Err(_) => Err(Error::NoFile),
            }
        }
        Origin::Http(_) if !rules.http => Err(Error::Disabled("http")),
        Origin::Http(uri) => {
            let uri: Uri = uri.parse().map_err(|_| Error::Address)?;
            in_time(download(uri, None, 0, rules.cap)).await
        }
        Origin::Hub { .. } if !rules.hub => Err(Error::Disabled("hf")),
        Origin::Hub {
            repository,
            revision,
            file,
        } => {
            let endpoint = hub.endpoint.trim_end_matches('/');
            let uri = format!("{endpoint}/{repository}/resolve/{revision}/{file}");
            let uri: Uri = uri.parse().map_err(|_| Error::Address)?;
            in_time(download(uri, hub.token.as_deref(), MAX_REDIRECTS, rules.cap)).await
        }
        Origin::Other => Err(Error::Unsupported),
    }
}

async fn in_time(work: impl Future<Output = Result<Bytes, Error>>) -> Result<Bytes, Error> {
    timeout(FETCH_TIMEOUT, work).await.unwrap_or(Err(Error::Late))
}

/// Reads a regular file. Opening does not wait for a writer, should it be a pipe.
pub(crate) fn read(path: &Path, cap: u64) -> Result<Bytes, Error> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(Error::NoFile);
    }
    if about.len() > cap {
        return Err(Error::TooLarge(cap));
    }
    let mut content = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0));
    file.take(cap.saturating_add(1)).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|length| length <= cap) {
        Ok(content.into())
    } else {
        Err(Error::TooLarge(cap))
    }
}

async fn download(mut uri: Uri, token: Option<&str>, mut redirects: usize, cap: u64) -> Result<Bytes, Error> {
    let asked = uri.authority().cloned();
    loop {
        let secure = uri.scheme_str() == Some("https");
        let token = token.filter(|_| uri.authority() == asked.as_ref());
        let answer = get(&uri, token).await?;
        let status = answer.status();
        if status.is_redirection() && redirects > 0 {
            redirects -= 1;
            let to = answer
                .headers()
                .get(header::LOCATION)
                .and_then(|to| to.to_str().ok())
                .ok_or(Error::Address)?;
            let next = resolve(&uri, to).ok_or(Error::Address)?;
            // What was asked in secret is not asked in the open.
            if secure && next.scheme_str() != Some("https") {
                return Err(Error::Address);
            }
            uri = next;
            continue;
        }
        if status != http::StatusCode::OK {
            return Err(Error::Status(status));
        }
        let limit = usize::try_from(cap).unwrap_or(usize::MAX);
        let declared = answer
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        if declared.is_some_and(|length: u64| length > cap) {
            return Err(Error::TooLarge(cap));
        }
        return match Limited::new(answer.into_body(), limit).collect().await {
            Ok(content) => Ok(content.to_bytes()),
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(error) => Err(Error::Http(*error)),
                Err(_) => Err(Error::TooLarge(cap)),
            },
        };
    }
}

/// Where a redirect leads to: an address, or a path of the same server.
fn resolve(from: &Uri, to: &str) -> Option<Uri> {
    let next: Uri = to.parse().ok()?;
    if next.authority().is_some() && next.scheme().is_some() {
        return Some(next);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(
        next.path_and_query()
            .filter(|path| path.path().starts_with('/'))?
            .clone(),
    );
    Uri::from_parts(parts).ok()
}

async fn get(uri: &Uri, token: Option<&str>) -> Result<http::Response<hyper::body::Incoming>, Error> {
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some(_) | None => return Err(Error::Address),
    };
    let authority = uri.authority().ok_or(Error::Address)?;
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    // Names and passwords in an address are not sent.
    let named = match uri.port() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path)
        .header(header::HOST, named)
        .header(
            header::USER_AGENT,
            concat!("continuum-router/", env!("CARGO_PKG_VERSION")),
        )
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Address)?;
    if let Some(token) = token {
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Address)?;
        bearer.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    let connect = async {
        let tcp = TcpStream::connect((host.as_str(), port)).await?;
        tcp.set_nodelay(true)?;
        if !secure {
            return Ok::<_, Error>(Box::new(tcp) as Box<dyn Stream>);
        }
        let name = ServerName::try_from(host.clone()).map_err(|_| Error::Address)?;
        let connector = TlsConnector::from(tls().await?);
        let stream = connector.connect(name, tcp).await.map_err(refused)?;
        Ok(Box::new(stream) as Box<dyn Stream>)
    };
    let stream = timeout(CONNECT_TIMEOUT, connect)
        .await
        .unwrap_or(Err(Error::Late))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(64 * 1024)
        .handshake(TokioIo::new(stream))
        .await?;
    // It ends with the answer's body.
    tokio::spawn(async move {
        let _ended = connection.await;
    });
    Ok(sender.send_request(request).await?)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How TLS connections are made. The system's authorities are files, of which there are many: they are read once.
async fn tls() -> Result<Arc<ClientConfig>, Error> {
    static TLS: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();
    let read = || async { spawn_blocking(client).await.map_err(std::io::Error::other)? };
    TLS.get_or_try_init(read).await.cloned()
}

fn client() -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::Tls("the system has no certificate authorities".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Why a handshake failed. The name that was asked is an address of the fleet, and is told at debug alone.
fn refused(error: std::io::Error) -> Error {
    tracing::debug!(%error, "no TLS connection to the server of a file");
    let found = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let names = matches!(
        found,
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForNameContext { .. }
        ))
    );
    Error::Tls(if names {
        "the certificate is another server's".to_owned()
    } else {
        error.to_string()
    })
}

#[cfg(test)]
mod tests;
