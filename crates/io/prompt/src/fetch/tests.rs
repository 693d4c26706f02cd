//! The Hub, and places on this machine. Workers' servers are tested where models are loaded.

use std::sync::{Mutex, PoisonError};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

const RULES: Rules = Rules {
    http: true,
    hub: true,
    cap: 1000,
};

fn origin() -> Origin {
    Origin::parse("hf://owner/model@v1/tokenizer.json").unwrap()
}

/// Answers each request with what its path is mapped to, and keeps the requests.
async fn server(answer: impl Fn(&str) -> String + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let kept = seen.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap().to_lowercase();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            stream.write_all(answer(&path).as_bytes()).await.unwrap();
        }
    });
    (port, seen)
}

fn to(place: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n")
}

fn ok(content: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{content}",
        content.len()
    )
}

#[tokio::test]
async fn the_hub_s_redirects_are_followed_and_its_token_stays_there() {
    let (storage, at_storage) = server(|_| ok("content")).await;
    let (hub, at_hub) = server(move |path| match path {
        "/owner/model/resolve/v1/tokenizer.json" => to("/moved"),
        _ => to(&format!("http://127.0.0.1:{storage}/blob")),
    })
    .await;
    let hub = Hub {
        endpoint: format!("http://127.0.0.1:{hub}/"),
        token: Some("secret".to_owned()),
    };
    assert_eq!(fetch(&origin(), &RULES, &hub).await.unwrap(), "content");
    let requests = |seen: &Mutex<Vec<String>>| seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(requests(&at_hub).len(), 2);
    assert!(
        requests(&at_hub)
            .iter()
            .all(|request| request.contains("authorization: bearer secret"))
    );
    assert!(
        requests(&at_storage)
            .iter()
            .all(|request| !request.contains("authorization"))
    );

    let no = Rules { hub: false, ..RULES };
    assert!(matches!(
        fetch(&origin(), &no, &hub).await,
        Err(Error::Disabled("hf"))
    ));
    assert!(!format!("{hub:?}").contains("secret"));
}

#[tokio::test]
async fn redirects_without_end_end() {
    let (port, seen) = server(|_| to("/again")).await;
    let hub = Hub {
        endpoint: format!("http://127.0.0.1:{port}"),
        token: None,
    };
    assert!(matches!(fetch(&origin(), &RULES, &hub).await, Err(Error::Status(status)) if status == 302));
    assert_eq!(
        seen.lock().unwrap_or_else(PoisonError::into_inner).len(),
        MAX_REDIRECTS + 1
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_costs_a_minute() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://127.0.0.1:{}/x", listener.local_addr().unwrap().port());
    let silent = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    });
    let started = tokio::time::Instant::now();
    assert!(matches!(
        fetch(&Origin::Http(address), &RULES, &Hub::default()).await,
        Err(Error::Late)
    ));
    assert!(started.elapsed() <= FETCH_TIMEOUT);
    silent.abort();
}

#[tokio::test]
async fn only_regular_files_within_the_cap_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("good"), "x".repeat(1000)).unwrap();
    std::fs::write(at("long"), "x".repeat(1001)).unwrap();
    std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status()
        .unwrap();
    assert!(pipe.success());
    let read = async |path| fetch(&Origin::Local(path), &RULES, &Hub::default()).await;
    assert_eq!(read(at("good")).await.unwrap().len(), 1000);
    assert_eq!(read(at("link")).await.unwrap().len(), 1000);
    assert!(matches!(read(at("long")).await, Err(Error::TooLarge(1000))));
    assert!(matches!(read(at("pipe")).await, Err(Error::NoFile)));
    assert!(matches!(read(dir.path().to_owned()).await, Err(Error::NoFile)));
    assert!(matches!(read("/dev/zero".into()).await, Err(Error::NoFile)));
    assert!(matches!(read(at("none")).await, Err(Error::Io(_))));
}

#[tokio::test]
async fn the_system_s_authorities_are_read_once() {
    // A system without any is asked again.
    if let (Ok(one), Ok(other)) = (tls().await, tls().await) {
        assert!(Arc::ptr_eq(&one, &other));
    }
}

#[test]
fn the_server_s_name_is_in_no_error() {
    let of = |why| refused(std::io::Error::other(rustls::Error::InvalidCertificate(why))).to_string();
    let other = of(CertificateError::NotValidForNameContext {
        expected: ServerName::try_from("worker-7.internal").unwrap(),
        presented: vec!["DnsName(\"other.internal\")".to_owned()],
    });
    assert!(!other.contains("internal"), "{other}");
    assert_ne!(
        of(CertificateError::UnknownIssuer),
        other,
        "what else is wrong is told"
    );
}
