//! Real etcd members on free loopback ports, in directories of their own, killed when dropped.
//!
//! Nothing here sends a request to etcd: a test brings its own client.

#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "test code: a broken precondition ends the test"
)]

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::mpsc,
    time::Duration,
};

use tempfile::TempDir;

use crate::process;

/// How long a member may take to serve; a loaded machine needs seconds.
const START: Duration = Duration::from_secs(30);
/// A port may be taken between being found free and being bound.
const TRIES: u32 = 5;
/// What etcd logs once clients are served.
const SERVES: &str = "serving client traffic";

/// Certificates of a member.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The member's certificate, PEM file.
    pub cert: PathBuf,
    /// Its key, PEM file.
    pub key: PathBuf,
    /// Clients must show a certificate of this authority, PEM file.
    pub client_ca: Option<PathBuf>,
}

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// TLS for clients.
    pub tls: Option<ServerTls>,
    /// Further flags.
    pub flags: Vec<String>,
    /// Which etcd; the one on PATH when not given.
    pub binary: Option<PathBuf>,
}

/// One member, alone or of a cluster.
#[derive(Debug)]
pub struct Etcd {
    child: Option<Child>,
    binary: PathBuf,
    arguments: Vec<String>,
    url: String,
    _dir: TempDir,
}

impl Etcd {
    /// A member alone, serving.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&Options::default())
    }

    /// A member alone with options, serving.
    #[must_use]
    pub fn start_with(options: &Options) -> Self {
        cluster(1, options).pop().expect("one member")
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the member (SIGKILL). Its data stays.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _dead_already = child.kill();
            let _reaped = child.wait();
        }
    }

    /// Starts a killed member again, on the same ports with its data, and waits until it serves.
    pub fn restart(&mut self) {
        self.kill();
        let (child, serves) = spawn(&self.binary, &self.arguments);
        self.child = Some(child);
        assert!(serves.recv_timeout(START).is_ok(), "etcd did not come back");
    }

    /// The process id of a running member.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster of `size` members that serve.
///
/// # Panics
/// When etcd is not installed or does not start.
#[must_use]
pub fn cluster(size: usize, options: &Options) -> Vec<Etcd> {
    for _ in 0..TRIES {
        if let Some(members) = try_cluster(size, options) {
            return members;
        }
    }
    panic!("etcd did not start on {TRIES} sets of free ports; run `etcd` by hand to see why");
}

fn try_cluster(size: usize, options: &Options) -> Option<Vec<Etcd>> {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let ports = free_ports(size * 2);
    let peers: Vec<String> = ports
        .iter()
        .skip(size)
        .map(|port| format!("http://127.0.0.1:{port}"))
        .collect();
    let initial: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(i, peer)| format!("m{i}={peer}"))
        .collect();
    let binary = options
        .binary
        .clone()
        .or_else(|| process::on_path("etcd"))
        .expect("no `etcd` on PATH: install it, for instance with `apt-get install etcd-server`");
    let mut members = Vec::new();
    let mut starting = Vec::new();
    for (index, (port, peer)) in ports.iter().zip(&peers).enumerate() {
        let dir = directory();
        let url = format!("{scheme}://127.0.0.1:{port}");
        let arguments = arguments(dir.path(), index, &url, peer, &initial.join(","), options);
        let (child, serves) = spawn(&binary, &arguments);
        members.push(Etcd {
            child: Some(child),
            binary: binary.clone(),
            arguments,
            url,
            _dir: dir,
        });
        starting.push(serves);
    }
    starting
        .iter()
        .all(|serves| serves.recv_timeout(START).is_ok())
        .then_some(members)
}

fn arguments(
    dir: &Path,
    index: usize,
    url: &str,
    peer: &str,
    initial: &str,
    options: &Options,
) -> Vec<String> {
    let mut flags = vec![
        format!("--name=m{index}"),
        format!("--data-dir={}", dir.join("data").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={initial}"),
        "--logger=zap".into(),
        "--log-level=info".into(),
    ];
    if let Some(tls) = &options.tls {
        flags.push(format!("--cert-file={}", tls.cert.display()));
        flags.push(format!("--key-file={}", tls.key.display()));
        if let Some(ca) = &tls.client_ca {
            flags.push("--client-cert-auth=true".into());
            flags.push(format!("--trusted-ca-file={}", ca.display()));
        }
    }
    flags.extend(options.flags.iter().cloned());
    flags
}

/// Starts etcd; the receiver gets one message when it serves, and closes when it ends before that.
fn spawn(binary: &Path, arguments: &[String]) -> (Child, mpsc::Receiver<()>) {
    let mut command = process::command(binary);
    command
        .args(arguments)
        // A proxy or a setting of the machine must not reach the test's own member.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child =
        process::spawn(command).unwrap_or_else(|error| panic!("cannot run `{}`: {error}", binary.display()));
    let log = child.stderr.take().expect("its log is piped");
    let (serves, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut serves = Some(serves);
        // Read to the end: a full pipe would stop the member.
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if line.contains(SERVES)
                && let Some(serves) = serves.take()
            {
                let _nobody_waits = serves.send(());
            }
        }
    });
    (child, receiver)
}

/// In memory where there is a place for it: etcd syncs its log at every write.
pub(crate) fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(dir) = TempDir::with_prefix_in("continuum-etcd-", memory)
    {
        return dir;
    }
    TempDir::with_prefix("continuum-etcd-").expect("a temporary directory")
}

/// Ports of 127.0.0.1 that nobody listens on now.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn free_ports(count: usize) -> Vec<u16> {
    // All held at once, so that they differ.
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    held.iter()
        .map(|listener| listener.local_addr().expect("a bound port").port())
        .collect()
}
