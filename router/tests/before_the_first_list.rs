//! A router whose registry is away since it was started: it serves what it can, and claims nothing about the rest.

#![cfg(feature = "dynamo")]
#![expect(clippy::unwrap_used, reason = "a test may fail this way")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// The process, ended with the test.
struct Router(Child);

impl Drop for Router {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The whole answer, as text.
fn exchange(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn ask(address: SocketAddr, model: &str) -> String {
    let body = format!(r#"{{"model":"{model}","messages":[]}}"#);
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    exchange(address, &(head + &body)).unwrap()
}

#[test]
fn a_model_of_the_fleet_is_not_ready_rather_than_unknown() {
    let (address, admin, nobody) = (free(), free(), free());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.yaml");
    let text = format!(
        "server: {{bind_address: \"{address}\"}}\n\
         admin: {{bind_address: \"{admin}\"}}\n\
         backends:\n\
         - {{name: frontend, url: \"http://{nobody}\", health: {{enabled: false}}}}\n\
         - {{name: other, url: \"http://{nobody}\", models: [elsewhere], health: {{enabled: false}}}}\n\
         dynamo:\n  enabled: true\n  discovery: {{etcd: {{endpoints: [\"http://{nobody}\"]}}}}\n  \
         load: {{direct_allow_cidrs: [127.0.0.0/8]}}\n  shim: {{backends: [frontend]}}\n"
    );
    fs::write(&file, text).unwrap();
    let process = Command::new(env!("CARGO_BIN_EXE_continuum-router"))
        .arg("--config")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn();
    let mut router = Router(process.unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    let live = "GET /live HTTP/1.1\r\nhost: router\r\nconnection: close\r\n\r\n";
    while exchange(address, live).is_err() {
        assert!(router.0.try_wait().unwrap().is_none(), "the router has ended");
        assert!(Instant::now() < deadline, "the router does not listen");
        sleep(Duration::from_millis(20));
    }

    let ready = exchange(address, &live.replace("/live", "/ready")).unwrap();
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    let answer = ask(address, "of-the-fleet");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("retry-after: 5") && answer.contains("\"model_not_ready\""),
        "{answer}"
    );
    // Somebody else serves this one, or would if it were there.
    let answer = ask(address, "elsewhere");
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("\"backend_failed\""),
        "{answer}"
    );
}
