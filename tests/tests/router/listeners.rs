//! Ways in: TLS, Unix sockets, HTTP/2, several addresses.

use std::sync::Arc;

use continuum_testkit::stub::{self, Act, Gate, Stub};
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

use crate::support::{Answer, MODEL, PATIENCE, Router, ask, chat, config, fleet, post, send};

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

/// What stands behind a request on its connection (the line end that old clients add, a second request, rubbish)
/// holds back nothing of the answer to the first.
#[tokio::test]
async fn an_answer_leaves_whatever_follows_its_request() {
    let gate = Gate::default();
    let held = gate.clone();
    let other = Stub::tcp(move |_| {
        vec![
            stub::stream_head(),
            stub::chunk("data: first\n\n"),
            Act::Hold(held.clone()),
            stub::chunk("data: [DONE]\n\n"),
            stub::last_chunk(),
        ]
    })
    .await
    .unwrap();
    let router = Router::start(&format!(
        "server: {{bind_address: '127.0.0.1:0'}}\nadmin: {{bind_address: '127.0.0.1:0'}}\n\
         backends: [{{name: other, url: \"{}\", models: [{MODEL}]}}]\n",
        other.url()
    ))
    .await;
    let body = chat(MODEL, true).to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut streams = Vec::new();
    for behind in [
        "",
        "\r\n",
        "GET /live HTTP/1.1\r\nhost: x\r\n\r\n",
        "rubbish\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(router.clients()).await.unwrap();
        stream
            .write_all(format!("{request}{behind}").as_bytes())
            .await
            .unwrap();
        read_until(&mut stream, "data: first\n\n").await;
        streams.push(stream);
    }
    gate.open();
    for mut stream in streams {
        read_until(&mut stream, "data: [DONE]\n\n").await;
    }
    assert!(router.stop().await);
}

/// A request that cannot be read is told so before its connection closes.
#[tokio::test]
async fn an_unreadable_request_is_answered() {
    let router = Router::start(
        "server: {bind_address: '127.0.0.1:0'}\nadmin: {bind_address: '127.0.0.1:0'}\nbackends: []\n",
    )
    .await;
    let long = "a".repeat(200_000);
    for (request, status) in [
        ("rubbish\r\n\r\n".to_owned(), "400"),
        ("GET /\0 HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (format!("GET /live HTTP/1.1\r\nx: {long}\r\n\r\n"), "431"),
        (
            "GET /live HTTP/1.1\r\n".to_owned() + &"x: y\r\n".repeat(200) + "\r\n",
            "431",
        ),
    ] {
        for address in [router.clients(), router.operators()] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // The router may close before it has taken all of a head that is too long.
            let _partly = stream.write_all(request.as_bytes()).await;
            let seen = read_until(&mut stream, "\r\n").await;
            assert!(
                seen.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:.40}: {seen}"
            );
        }
    }
    assert!(router.stop().await);
}

/// Reads until these bytes have come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&seen).contains(end) {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).await.unwrap();
            assert!(length > 0, "closed behind {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..length]);
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    String::from_utf8(seen).unwrap()
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
