//! The server processes: where their binaries are, with which flags they run, and their logs.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal};

use super::Options;
use crate::process;

/// A server process of ours. Killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    pub(super) fn spawn(name: &str, flags: &[String], log: &Path) -> Self {
        let file = File::create(log).expect("a log file");
        let mut command = process::command(&binary(name));
        command
            .args(flags)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log file"))
            .stderr(file);
        let child =
            process::spawn(command).unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self {
            child,
            log: log.to_owned(),
        }
    }

    pub(super) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        rustix::process::kill_process(pid.expect("a process has an id"), signal)
            .expect("our own process takes a signal");
    }

    #[expect(clippy::print_stderr, reason = "tells why a test cannot go on")]
    pub(super) fn show_log(&self) {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(15).collect();
        for line in lines.iter().rev() {
            eprintln!("{}: {line}", self.log.display());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _dead_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(super) fn api_flags(dir: &Path, port: u16, etcd: &str, options: &Options) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    let mut flags = vec![
        format!("--etcd-servers={etcd}"),
        // Nothing is forgotten before a test asks for it.
        "--etcd-compaction-interval=0".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        format!("--watch-cache={}", options.watch_cache),
    ];
    if !options.controllers {
        // Nobody makes a namespace's default account, which this plugin would demand of every pod.
        flags.push("--disable-admission-plugins=ServiceAccount".into());
    }
    flags.extend(options.flags.iter().cloned());
    flags
}

pub(super) fn controller_flags(dir: &Path) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", file("admin.kubeconfig")),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("sa.key")),
    ]
}

/// A program of Kubernetes (an API server, kubectl, helm): ready-made ones of `$KUBEBUILDER_ASSETS` first, then those of
/// `scripts/kube/build.sh`, then the machine's.
///
/// # Panics
/// When it is nowhere.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let ready = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let built = cache().join("kube/bin");
    for folder in ready.into_iter().chain([built]) {
        let file = folder.join(name);
        if file.is_file() {
            return file;
        }
    }
    process::on_path(name)
        .unwrap_or_else(|| panic!("no {name}: run scripts/install-test-deps.sh, or set KUBEBUILDER_ASSETS"))
}

/// The same folder that the scripts use.
fn cache() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = set("CONTINUUM_CACHE") {
        return cache.into();
    }
    let parent = set("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(set("HOME").unwrap_or_default()).join(".cache"),
        PathBuf::from,
    );
    parent.join("continuum-router")
}
