//! One connection to a controller: TCP, TLS 1.3, HTTP/2. Certificates and token are read for each: both change on disk.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tokio_rustls::TlsConnector;
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tower::service_fn;

use crate::{
    error::{Error, cut},
    limits::{MAX_CA_BYTES, MAX_TOKEN_BYTES},
    settings::Settings,
};

/// A connection, and what is to be shown on it.
pub(crate) struct Connected {
    pub(crate) channel: Channel,
    pub(crate) bearer: MetadataValue<Ascii>,
}

/// Connects. The caller limits the time.
pub(crate) async fn connect(settings: &Settings, address: SocketAddr) -> Result<Connected, Error> {
    let bearer = bearer(&settings.token_file).await?;
    let tls = TlsConnector::from(Arc::new(tls(&settings.ca_file).await?));
    let name = ServerName::try_from(settings.host.clone()).map_err(|_invalid| {
        Error::Connect("the endpoint's host is no name that a certificate can carry".into())
    })?;
    // TLS is ours: tonic sees a stream that is encrypted already.
    let endpoint = Endpoint::from_shared(format!("http://{}", authority(&settings.host, settings.port)))
        .map_err(|error| Error::Connect(cut(&error.to_string())))?;
    let connector = service_fn(move |_| {
        let (tls, name) = (tls.clone(), name.clone());
        async move {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            Ok::<_, io::Error>(TokioIo::new(tls.connect(name, tcp).await?))
        }
    });
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| Error::Connect(cut(&causes(&error))))?;
    Ok(Connected { channel, bearer })
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

async fn bearer(file: &Path) -> Result<MetadataValue<Ascii>, Error> {
    let refused = |why: String| Error::Token {
        path: file.to_owned(),
        why,
    };
    let bytes = read(file, MAX_TOKEN_BYTES)
        .await
        .map_err(|error| refused(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_binary| refused("it is not a text".into()))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(refused("it is empty".into()));
    }
    let mut value: MetadataValue<Ascii> = format!("Bearer {text}")
        .parse()
        .map_err(|_invalid| refused("it holds characters that no token has".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn tls(file: &Path) -> Result<ClientConfig, Error> {
    let refused = |why: String| Error::Ca {
        path: file.to_owned(),
        why,
    };
    let bytes = read(file, MAX_CA_BYTES)
        .await
        .map_err(|error| refused(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refused("it holds no certificate".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| refused(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let open = tokio::fs::File::open(file).await?;
    let mut bytes = Vec::new();
    open.take(most.saturating_add(1)).read_to_end(&mut bytes).await?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= most) {
        Ok(bytes)
    } else {
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {most} bytes"),
        ))
    }
}

/// An error and what caused it: the outermost says "transport error" alone.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = cause.to_string();
        next = cause.source();
    }
    text
}
