//! A real Kubernetes API server (and, on demand, the real controllers) with an etcd of its own, on free loopback ports.
//!
//! Binaries come from `$KUBEBUILDER_ASSETS`, else from `scripts/kube/build.sh`. There is no node: pods are never started, a test writes
//! their status. RBAC is in force; [`Cluster::client`] may do everything, [`Cluster::service_account`] only what was granted.
//!
//! A start takes some four seconds, so the tests of one file share a cluster and use a namespace each:
//!
//! ```no_run
//! use continuum_testkit::kube::Cluster;
//! use tokio::sync::OnceCell;
//!
//! static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
//!
//! # async fn test() {
//! let cluster = CLUSTER.get_or_init(Cluster::start).await;
//! let namespace = cluster.namespace("source").await;
//! # }
//! ```
//!
//! Clients belong to the runtime (so, to the test) that made them: share the cluster, never a client.

#![expect(clippy::panic, reason = "test code: a broken precondition ends the test")]

pub mod fleet;

mod certificates;
mod objects;
mod server;

use std::{
    path::PathBuf,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::Signal;
use tempfile::TempDir;

pub use self::server::binary;
use self::server::{Server, api_flags, controller_flags};
use crate::etcd::{self, Etcd};

/// How long a server may take to be ready; a loaded machine needs tens of seconds.
const START: Duration = Duration::from_secs(90);
/// A port may be taken between being found free and being bound.
const TRIES: u32 = 3;
/// Between two looks at something that is about to change.
const POLL: Duration = Duration::from_millis(50);
/// The bearer token of the administrator.
const ADMIN_TOKEN: &str = "continuum-test-admin";

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Also run kube-controller-manager: Deployments make pods, EndpointSlices follow, owners take their children along.
    pub controllers: bool,
    /// Let the API server answer watches from its own memory. Without it every watch reaches etcd, and one that asks for what
    /// [`Cluster::compact`] removed is answered with 410.
    pub watch_cache: bool,
    /// Further flags of kube-apiserver.
    pub flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: false,
            watch_cache: true,
            flags: Vec::new(),
        }
    }
}

/// A running API server with what it needs. Ends when dropped, or with the test process.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: clients of a server before the server.
    controllers: Mutex<Option<Server>>,
    api: Mutex<Option<Server>>,
    etcd: Etcd,
    api_flags: Vec<String>,
    controller_flags: Option<Vec<String>>,
    url: String,
    ca: String,
    next_name: AtomicU32,
    dir: TempDir,
}

impl Cluster {
    /// An API server without controllers, ready.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// An API server with kube-controller-manager, ready.
    pub async fn start_with_controllers() -> Self {
        Self::start_with(Options {
            controllers: true,
            ..Options::default()
        })
        .await
    }

    /// An API server with options, ready.
    ///
    /// # Panics
    /// When the binaries are missing, or the server does not start.
    pub async fn start_with(options: Options) -> Self {
        for _ in 0..TRIES {
            let cluster = Self::prepare(&options);
            cluster.spawn_api();
            if !cluster.wait_ready().await {
                continue;
            }
            if options.controllers {
                cluster.spawn_controllers();
                cluster.wait_for_controllers().await;
            }
            return cluster;
        }
        panic!("kube-apiserver did not start; its log is printed above");
    }

    /// Where the API server listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate authority of the API server, PEM.
    #[must_use]
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The administrator's kubeconfig file.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// A kubeconfig file whose user shows `token`, for another process.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &str) -> PathBuf {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        let file = self.dir.path().join(format!("user-{number}.kubeconfig"));
        std::fs::write(&file, self.kubeconfig_text(token)).expect("a kubeconfig is written");
        file
    }

    /// How to connect as the administrator.
    pub async fn config(&self) -> Config {
        self.config_with(ADMIN_TOKEN).await
    }

    /// How to connect with a bearer token.
    ///
    /// # Panics
    /// When our own kubeconfig does not parse.
    pub async fn config_with(&self, token: &str) -> Config {
        let text = self.kubeconfig_text(token);
        let parsed = Kubeconfig::from_yaml(&text).expect("our kubeconfig parses");
        let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
            .await
            .expect("our kubeconfig is whole");
        // The machine's proxy must not stand between a test and its own server.
        config.proxy_url = None;
        config
    }

    /// A client that may do everything.
    ///
    /// # Panics
    /// When the client's TLS cannot be set up.
    pub async fn client(&self) -> Client {
        Client::try_from(self.config().await).expect("a client is made")
    }

    /// A client that acts as a ServiceAccount by impersonation; the account need not exist.
    ///
    /// # Panics
    /// When the client's TLS cannot be set up.
    pub async fn impersonating(&self, namespace: &str, name: &str) -> Client {
        let mut config = self.config().await;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{name}"));
        config.auth_info.impersonate_groups = Some(vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ]);
        Client::try_from(config).expect("a client is made")
    }

    /// A client with a token of a ServiceAccount, which is made when it is missing.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Client {
        let token = self.token(namespace, name, &[]).await;
        Client::try_from(self.config_with(&token).await).expect("a client is made")
    }

    /// A token of a ServiceAccount (made when missing) for some audiences; for the API server itself when none is given.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn token(&self, namespace: &str, name: &str, audiences: &[&str]) -> String {
        let client = self.client().await;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        if accounts.get_opt(name).await.expect("an answer").is_none() {
            let mut account = ServiceAccount::default();
            account.metadata.name = Some(name.into());
            accounts
                .create(&PostParams::default(), &account)
                .await
                .expect("the account is made");
        }
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(audiences.iter().map(|&name| name.to_owned()).collect()),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .expect("a token is given");
        let status = answer.status.expect("a token has a status");
        status.token.expect("a token")
    }

    /// Makes a namespace whose name starts with `prefix` and is new; returns its name.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn namespace(&self, prefix: &str) -> String {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{number}");
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        Api::<Namespace>::all(self.client().await)
            .create(&PostParams::default(), &namespace)
            .await
            .expect("the namespace is made");
        name
    }

    /// The body of a plain GET, for instance of `/metrics`.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn raw(&self, path: &str) -> String {
        try_raw(&self.client().await, path)
            .await
            .expect("the API server answers")
    }

    /// Kills the API server (SIGKILL). What it stored stays.
    pub fn kill(&self) {
        *lock(&self.api) = None;
    }

    /// Starts the API server again on the same port, killing it first when it runs, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not come back.
    pub async fn restart(&self) {
        self.kill();
        self.spawn_api();
        assert!(self.wait_ready().await, "kube-apiserver did not come back");
    }

    /// Stops the API server in its tracks (SIGSTOP): connections stay open and are silent.
    pub fn freeze(&self) {
        self.signal_api(Signal::STOP);
    }

    /// Lets a frozen API server go on.
    pub fn thaw(&self) {
        self.signal_api(Signal::CONT);
    }

    /// Forgets every earlier revision in etcd: whoever asks for one is answered with 410. The API server's own memory may still have it:
    /// see [`Options::watch_cache`], or kill the API server meanwhile.
    ///
    /// # Panics
    /// When etcdctl is missing or fails.
    pub fn compact(&self) {
        let status = self.etcdctl(&["get", "continuum-no-such-key", "--write-out=json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("etcdctl writes JSON");
        let revision = status["header"]["revision"]
            .as_i64()
            .expect("an answer has a revision");
        self.etcdctl(&["compaction", &revision.to_string()]);
    }

    /// The etcd behind it.
    #[must_use]
    pub fn etcd_url(&self) -> &str {
        self.etcd.url()
    }

    fn prepare(options: &Options) -> Self {
        let dir = etcd::directory();
        let [port] = etcd::free_ports(1)[..] else {
            panic!("one port was asked for")
        };
        let url = format!("https://127.0.0.1:{port}");
        let ca = certificates::write(dir.path());
        let tokens = format!("{ADMIN_TOKEN},admin,admin,system:masters\n");
        std::fs::write(dir.path().join("tokens.csv"), tokens).expect("tokens are written");
        let etcd = etcd::cluster(
            1,
            &etcd::Options {
                binary: Some(binary("etcd")),
                flags: vec!["--unsafe-no-fsync".into()],
                ..etcd::Options::default()
            },
        )
        .pop()
        .expect("one member");
        let api_flags = api_flags(dir.path(), port, etcd.url(), options);
        let cluster = Self {
            controllers: Mutex::new(None),
            api: Mutex::new(None),
            etcd,
            api_flags,
            controller_flags: options.controllers.then(|| controller_flags(dir.path())),
            url,
            ca,
            next_name: AtomicU32::new(0),
            dir,
        };
        std::fs::write(cluster.kubeconfig(), cluster.kubeconfig_text(ADMIN_TOKEN))
            .expect("the kubeconfig is written");
        cluster
    }

    fn kubeconfig_text(&self, token: &str) -> String {
        let authority = self.dir.path().join("ca.crt");
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"{}\", certificate-authority: \"{}\"}}}}]\n\
             users: [{{name: test, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n",
            self.url,
            authority.display(),
        )
    }

    fn spawn_api(&self) {
        let log = self.dir.path().join("kube-apiserver.log");
        *lock(&self.api) = Some(Server::spawn("kube-apiserver", &self.api_flags, &log));
    }

    fn spawn_controllers(&self) {
        if let Some(flags) = &self.controller_flags {
            let log = self.dir.path().join("kube-controller-manager.log");
            *lock(&self.controllers) = Some(Server::spawn("kube-controller-manager", flags, &log));
        }
    }

    async fn wait_ready(&self) -> bool {
        let client = self.client().await;
        let begun = Instant::now();
        while begun.elapsed() < START {
            if try_raw(&client, "/readyz").await.is_ok() {
                return true;
            }
            if let Some(server) = &mut *lock(&self.api)
                && !server.runs()
            {
                server.show_log();
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        if let Some(server) = &*lock(&self.api) {
            server.show_log();
        }
        false
    }

    /// The first thing that the controllers make shows that they work.
    async fn wait_for_controllers(&self) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await, "default");
        let begun = Instant::now();
        while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
            if begun.elapsed() > START {
                if let Some(server) = &*lock(&self.controllers) {
                    server.show_log();
                }
                panic!("kube-controller-manager did not start");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn signal_api(&self, signal: Signal) {
        let api = lock(&self.api);
        let server = api.as_ref().expect("the API server runs");
        server.signal(signal);
    }

    fn etcdctl(&self, arguments: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.etcd.url()))
            .args(arguments)
            .output()
            .expect("etcdctl runs (Debian: etcd-client)");
        assert!(
            output.status.success(),
            "etcdctl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Waits until `look` gives something.
///
/// # Panics
/// When that does not happen within `limit`.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < limit, "did not happen within {limit:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

async fn try_raw(client: &Client, path: &str) -> Result<String, String> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    client
        .request_text(request)
        .await
        .map_err(|error| error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
