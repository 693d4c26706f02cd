//! The process: what signals do to it.

#![expect(clippy::unwrap_used, reason = "a test may fail this way")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

use continuum_testkit::stub::{self, Act, Gate, Stub};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A router in a process of its own, ended with the test.
struct Router {
    child: Child,
    lines: mpsc::Receiver<String>,
    clients: String,
    file: PathBuf,
    _folder: TempDir,
}

impl Drop for Router {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Router {
    fn start(backend: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("router.yaml");
        let config = format!(
            "server: {{bind_address: '127.0.0.1:0', graceful_period: 20s, threads: 2}}\n\
             admin: {{bind_address: 'unix:{}'}}\n\
             backends:\n  - {{name: one, url: '{backend}', models: [m]}}\n",
            folder.path().join("admin.sock").display()
        );
        fs::write(&file, config).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_continuum-router"))
            .arg("--config")
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (told, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        let mut router = Self {
            child,
            lines,
            clients: String::new(),
            file,
            _folder: folder,
        };
        let listening = router.until_said("listening address=\"127.0.0.1");
        let (_, address) = listening.split_once("address=\"").unwrap();
        router.clients = address.split_once('"').unwrap().0.to_owned();
        router
    }

    /// Waits until a line of the log holds this.
    fn until_said(&self, what: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.map_err(|_| format!("not said: {what}")).unwrap();
            if line.contains(what) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    async fn ended(&mut self) -> ExitStatus {
        for _ in 0..PATIENCE.as_millis() / 10 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }

    /// Begins a streamed request; returns when its first event is here.
    async fn stream(&self) -> TcpStream {
        let mut client = TcpStream::connect(&self.clients).await.unwrap();
        let body = r#"{"model":"m","stream":true,"messages":[]}"#;
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"data: 1\n\n\r\n") {
            let mut buffer = [0; 4096];
            let read = client.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..read]);
        }
        client
    }
}

async fn backend(gate: &Gate) -> Stub {
    let gate = gate.clone();
    Stub::tcp(move |_| {
        vec![
            stub::stream_head(),
            stub::chunk("data: 1\n\n"),
            Act::Hold(gate.clone()),
            stub::chunk("data: [DONE]\n\n"),
            stub::last_chunk(),
        ]
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_drain_lets_streams_finish_and_takes_no_new_connection() {
    let gate = Gate::default();
    let backend = backend(&gate).await;
    let mut router = Router::start(backend.url());
    let mut stream = router.stream().await;
    // Connections that are in no exchange hold nothing up: nothing sent, a part of a head, an answered request.
    let idle = TcpStream::connect(&router.clients).await.unwrap();
    let mut half = TcpStream::connect(&router.clients).await.unwrap();
    half.write_all(b"POST /v1/chat").await.unwrap();
    let mut kept = TcpStream::connect(&router.clients).await.unwrap();
    kept.write_all(b"GET /live HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    assert!(kept.read(&mut [0; 4096]).await.unwrap() > 0);
    router.signal("TERM");
    router.until_said("draining");
    // The socket closes: new clients go elsewhere.
    while TcpStream::connect(&router.clients).await.is_ok() {
        tokio::task::yield_now().await;
    }
    // A request that was on its way is answered, and learns that the connection ends with it.
    kept.write_all(b"GET /live HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut last = String::new();
    kept.read_to_string(&mut last).await.unwrap();
    assert!(last.starts_with("HTTP/1.1 200"), "{last}");
    assert!(last.to_ascii_lowercase().contains("connection: close"), "{last}");
    gate.open();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(router.ended().await.code(), Some(0));
    drop((idle, half, kept));
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let gate = Gate::default();
    let backend = backend(&gate).await;
    let mut router = Router::start(backend.url());
    let mut stream = router.stream().await;
    router.signal("INT");
    router.until_said("draining");
    assert!(router.child.try_wait().unwrap().is_none());
    router.signal("TERM");
    let status = router.ended().await;
    assert_eq!(status.code(), Some(1));
    // The stream was cut, not finished.
    let mut rest = Vec::new();
    let _reset = stream.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
}

#[tokio::test]
async fn a_hangup_reads_the_file_again() {
    let gate = Gate::default();
    let backend = backend(&gate).await;
    let mut router = Router::start(backend.url());
    let text = fs::read_to_string(&router.file).unwrap();
    fs::write(&router.file, format!("{text}oops: 1\n")).unwrap();
    router.until_said("is rejected");
    fs::write(
        &router.file,
        text.replace("graceful_period: 20s", "graceful_period: 21s"),
    )
    .unwrap();
    router.signal("HUP");
    let said = router.until_said("is in force");
    assert!(said.contains("server.graceful_period"), "{said}");
    router.signal("TERM");
    assert_eq!(router.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_grace_of_a_drain_is_that_of_the_newest_configuration() {
    let gate = Gate::default();
    let backend = backend(&gate).await;
    let mut router = Router::start(backend.url());
    let _stream = router.stream().await;
    let text = fs::read_to_string(&router.file).unwrap();
    let shorter = text.replace("graceful_period: 20s", "graceful_period: 100ms");
    fs::write(&router.file, shorter).unwrap();
    router.until_said("is in force");
    router.signal("TERM");
    let said = router.until_said("draining");
    assert!(said.contains("grace=100ms"), "{said}");
    router.until_said("stopped before every request had finished");
    assert_eq!(router.ended().await.code(), Some(1));
}

#[test]
fn an_address_that_is_taken_is_an_error_with_words() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.yaml");
    let address = taken.local_addr().unwrap();
    fs::write(&file, format!("server: {{bind_address: '{address}'}}\n")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_continuum-router"))
        .arg("--config")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
}
