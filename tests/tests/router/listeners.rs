//! Ways in: TLS, Unix sockets, HTTP/2, several addresses.

use std::sync::Arc;

use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::support::{Answer, MODEL, Router, ask, chat, config, fleet, post, send};

#[tokio::test]
async fn tls_offers_both_versions_of_http() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (sim, store) = fleet(1).await;
    let config = config(&store, &[format!("http://{}", sim.frontends()[0])], "").replace(
        "server: {",
        &format!(
            "server: {{tls: {{cert: {}, key: {}}}, ",
            cert.display(),
            key.display()
        ),
    );
    let router = Router::start(&config).await;
    router.settle(4).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    for (alpn, version) in [("http/1.1", Version::HTTP_11), ("h2", Version::HTTP_2)] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        client.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = TcpStream::connect(router.clients()).await.unwrap();
        let stream = TlsConnector::from(Arc::new(client))
            .connect(ServerName::try_from("localhost").unwrap(), stream)
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
        let body = chat(MODEL, false).to_string();
        let answer = if version == Version::HTTP_2 {
            over_http2(stream, post().uri("https://localhost/v1/chat/completions"), body).await
        } else {
            Answer::of(send(stream, post(), body).await).await
        };
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    // Plain text on a TLS port is no request, and takes nothing down.
    let plain = TcpStream::connect(router.clients()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(plain))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get("/live")
        .body(Full::new(bytes::Bytes::new()))
        .unwrap();
    assert!(sender.send_request(request).await.is_err());
    assert!(router.stop().await);
}

#[tokio::test]
async fn several_addresses_and_a_unix_socket_serve_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("router.sock");
    // A killed process left it behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (sim, store) = fleet(1).await;
    let config = config(&store, &[format!("http://{}", sim.frontends()[0])], "").replace(
        "bind_address: '127.0.0.1:0', body",
        &format!(
            "bind_address: ['127.0.0.1:0', 'unix:{}', '[::1]:0'], body",
            socket.display()
        ),
    );
    let router = Router::start(&config).await;
    router.settle(4).await;
    let body = chat(MODEL, false).to_string();
    let answer =
        Answer::of(send(UnixStream::connect(&socket).await.unwrap(), post(), body.clone()).await).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    for address in [0, 2] {
        let to = router.serving.clients[address].parse().unwrap();
        assert_eq!(ask(to, post(), body.clone()).await.status, StatusCode::OK);
    }
    assert!(router.stop().await);
    assert!(!socket.exists());
}

#[tokio::test]
async fn http2_without_tls_is_recognised() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let stream = TcpStream::connect(router.clients()).await.unwrap();
    let request = post().uri(format!("http://{}/v1/chat/completions", router.clients()));
    let answer = over_http2(stream, request, chat(MODEL, true).to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert!(router.stop().await);
}

async fn over_http2(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    request: http::request::Builder,
    body: String,
) -> Answer {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let (head, body) = response.into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}
