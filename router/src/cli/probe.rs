//! `probe`: asks an address once, for health checks in images that hold no other program.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use http::{StatusCode, Uri, uri::Scheme};

/// Each step (connecting, writing, reading) may take this long: health checks are repeated.
const STEP: Duration = Duration::from_secs(5);
/// The status line is at the front; nothing further is read.
const MAX_HEAD_BYTES: usize = 64;

/// Why an address is not healthy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none that can be asked.
    #[error("{0}: write http://HOST:PORT/PATH")]
    Address(Uri),
    /// Nobody answered.
    #[error("{uri}: {source}")]
    Io {
        /// Who was asked.
        uri: Uri,
        /// What went wrong.
        source: io::Error,
    },
    /// The answer is no success.
    #[error("{uri}: {answer}")]
    Refused {
        /// Who was asked.
        uri: Uri,
        /// What it said.
        answer: Answer,
    },
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An answer with this status.
    Status(StatusCode),
    /// Something that is no HTTP.
    NoHttp,
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(out, "answered {status}"),
            Self::NoHttp => out.write_str("the answer is no HTTP/1"),
        }
    }
}

/// Asks `uri` once.
///
/// # Errors
/// Whatever is no answer with a status of 2xx.
pub fn run(uri: &Uri) -> Result<(), Error> {
    let plain = uri.scheme().is_none_or(|scheme| *scheme == Scheme::HTTP);
    let (true, Some(host)) = (plain, uri.host()) else {
        return Err(Error::Address(uri.clone()));
    };
    let head = ask(uri, host).map_err(|source| Error::Io {
        uri: uri.clone(),
        source,
    })?;
    match status(&head) {
        Answer::Status(status) if status.is_success() => Ok(()),
        answer @ (Answer::Status(_) | Answer::NoHttp) => Err(Error::Refused {
            uri: uri.clone(),
            answer,
        }),
    }
}

fn ask(uri: &Uri, host: &str) -> io::Result<Vec<u8>> {
    let port = uri.port_u16().unwrap_or(80);
    let mut stream = connect(host.trim_matches(['[', ']']), port)?;
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    )?;
    let mut head = Vec::new();
    stream.take(MAX_HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The first address of the name that takes a connection.
fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, STEP) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The status of `HTTP/1.x NNN …`.
fn status(head: &[u8]) -> Answer {
    let code = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    code.and_then(|code| StatusCode::from_bytes(code).ok())
        .map_or(Answer::NoHttp, Answer::Status)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// A server that answers one request with these bytes.
    fn server(answer: &'static str) -> (Uri, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/readyz?x=1", listener.local_addr().unwrap());
        let told = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // A request may come in several pieces.
            let mut request = Vec::new();
            let mut piece = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut piece).unwrap();
                assert!(length > 0, "the request has an end");
                request.extend_from_slice(piece.get(..length).unwrap());
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request).into_owned()
        });
        (uri.parse().unwrap(), told)
    }

    #[test]
    fn a_status_of_2xx_is_healthy_and_nothing_else() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", None),
            ("HTTP/1.0 204 No Content\r\n\r\n", None),
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\n",
                Some("answered 503 Service Unavailable"),
            ),
            ("HTTP/1.1 302 Found\r\n\r\n", Some("answered 302 Found")),
            ("SSH-2.0-x\r\n", Some("the answer is no HTTP/1")),
            ("", Some("the answer is no HTTP/1")),
        ] {
            let (uri, told) = server(answer);
            let result = run(&uri).map_err(|error| error.to_string());
            let request = told.join().unwrap();
            assert!(
                request.starts_with("GET /readyz?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"),
                "{request}"
            );
            assert_eq!(
                result,
                expected.map_or(Ok(()), |text| Err(format!("{uri}: {text}"))),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(
            run(&format!("http://{free}/").parse().unwrap()),
            Err(Error::Io { .. })
        ));
        for text in ["https://127.0.0.1/", "/readyz"] {
            assert!(
                matches!(run(&text.parse().unwrap()), Err(Error::Address(_))),
                "{text}"
            );
        }
    }
}
