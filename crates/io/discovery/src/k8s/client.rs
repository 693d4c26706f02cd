//! An API client that can list and watch and nothing else.
//!
//! `kube::Client` can do anything, so it stays private to this file: the only requests that leave it are GETs of
//! three collections in one namespace.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::{
    Client, Config,
    client::Body,
    config::{ExecInteractiveMode, KubeConfigOptions, Kubeconfig},
    core::{Request, params::ListParams, params::WatchParams},
};
use serde::Deserialize;
use tokio::{runtime::Handle, task::JoinHandle};

use super::Credentials;
use crate::{
    error::{Error, peer_text},
    limits::{MAX_PAGE_BYTES, MAX_STATUS_BYTES, METADATA_PAGE, OBJECT_PAGE},
};

/// The label that Dynamo's own discovery selects EndpointSlices and Pods by.
pub(super) const ENABLED: &str = "nvidia.com/dynamo-discovery-enabled=true";

/// A collection that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Metadata,
    Slices,
    Pods,
}

impl Resource {
    /// The resource's name as RBAC spells it: `pods`.
    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Metadata => "dynamoworkermetadatas",
            Self::Slices => "endpointslices",
            Self::Pods => "pods",
        }
    }

    /// Its API group; empty for the core group.
    pub(super) const fn group(self) -> &'static str {
        match self {
            Self::Metadata => "nvidia.com",
            Self::Slices => "discovery.k8s.io",
            Self::Pods => "",
        }
    }

    /// Objects of one page.
    pub(super) const fn page(self) -> u32 {
        match self {
            Self::Metadata => METADATA_PAGE,
            Self::Slices | Self::Pods => OBJECT_PAGE,
        }
    }

    fn path(self, namespace: &str) -> String {
        let root = match self {
            Self::Metadata => "/apis/nvidia.com/v1alpha1",
            Self::Slices => "/apis/discovery.k8s.io/v1",
            Self::Pods => "/api/v1",
        };
        format!("{root}/namespaces/{namespace}/{}", self.plural())
    }
}

/// What we ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    List,
    Watch,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// Makes clients, one at a time.
pub(super) struct Connector {
    credentials: Credentials,
    /// A kubeconfig may run a program for its credentials. One that hangs is waited for by later passes and not
    /// started again.
    pending: Option<JoinHandle<Result<Client, Error>>>,
}

impl Connector {
    pub(super) const fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            pending: None,
        }
    }

    /// Reads the credentials anew, off the async threads. Cancel-safe.
    pub(super) async fn connect(&mut self, namespace: &str) -> Result<Reader, Error> {
        let credentials = &self.credentials;
        let pending = self.pending.get_or_insert_with(|| {
            let (credentials, runtime) = (credentials.clone(), Handle::current());
            tokio::task::spawn_blocking(move || client(&credentials, &runtime))
        });
        let made = pending.await;
        self.pending = None;
        let client = made.map_err(|lost| Error::Closed {
            why: lost.to_string(),
        })??;
        Ok(Reader {
            client,
            namespace: namespace.to_owned(),
        })
    }
}

/// Lists and watches in one namespace.
pub(super) struct Reader {
    client: Client,
    namespace: String,
}

/// A page that was read, or that is to be asked for again with fewer objects.
pub(super) enum Page {
    Whole(Vec<u8>),
    TooLarge,
}

impl Reader {
    /// One page of a list.
    pub(super) async fn page(
        &self,
        resource: Resource,
        selector: Option<&str>,
        limit: u32,
        continue_token: Option<&str>,
    ) -> Result<Page, Error> {
        let params = ListParams {
            label_selector: selector.map(str::to_owned),
            limit: Some(limit),
            continue_token: continue_token.map(str::to_owned),
            ..ListParams::default()
        };
        let request = Request::new(resource.path(&self.namespace)).list(&params);
        let body = self.ask(resource, Verb::List, request).await?;
        Ok(match collect(body, MAX_PAGE_BYTES).await? {
            Some(page) => Page::Whole(page),
            None => Page::TooLarge,
        })
    }

    /// Opens a watch that the server is to end after `length`.
    pub(super) async fn watch(
        &self,
        resource: Resource,
        selector: Option<&str>,
        version: &str,
        length: Duration,
    ) -> Result<Body, Error> {
        let params = WatchParams {
            label_selector: selector.map(str::to_owned),
            timeout: Some(u32::try_from(length.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(resource.path(&self.namespace)).watch(&params, version);
        self.ask(resource, Verb::Watch, request).await
    }

    async fn ask(
        &self,
        resource: Resource,
        verb: Verb,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Body, Error> {
        let request = request.map_err(|error| Error::ApiServer {
            why: peer_text(&error.to_string()),
        })?;
        let answer = self
            .client
            .send(request.map(Body::from))
            .await
            .map_err(|error| unreachable(&error))?;
        let code = answer.status();
        if code.is_success() {
            return Ok(answer.into_body());
        }
        let text = collect(answer.into_body(), MAX_STATUS_BYTES)
            .await?
            .unwrap_or_default();
        let message = serde_json::from_slice::<Status>(&text)
            .ok()
            .and_then(|status| status.message)
            .unwrap_or_else(|| format!("HTTP status {code}"));
        Err(match code.as_u16() {
            401 => Error::Unauthorized,
            403 => Error::Forbidden {
                verb: verb.as_str(),
                resource: resource.plural(),
                group: resource.group(),
                namespace: self.namespace.clone(),
            },
            404 if resource == Resource::Metadata => Error::NotInstalled,
            code => status_error(code, &message),
        })
    }
}

/// The end of a `Status` object.
pub(super) fn status_error(code: u16, message: &str) -> Error {
    match code {
        410 => Error::Expired,
        code => Error::ApiServer {
            why: peer_text(&format!("{code} {message}")),
        },
    }
}

/// What we read of a `Status` object.
#[derive(Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) code: Option<u16>,
    #[serde(default)]
    pub(super) message: Option<String>,
}

/// In-cluster credentials come before a kubeconfig: a pod's own account is what its operator meant.
fn client(credentials: &Credentials, runtime: &Handle) -> Result<Client, Error> {
    let refused = |why: String| Error::NoCredentials { why: peer_text(&why) };
    let kubeconfig = match credentials {
        Credentials::Found => match Config::incluster() {
            Ok(config) => return finish(config),
            Err(in_cluster) => Kubeconfig::read().map_err(|kubeconfig| {
                refused(format!("in cluster: {in_cluster}; kubeconfig: {kubeconfig}"))
            })?,
        },
        Credentials::Kubeconfig(path) => {
            Kubeconfig::read_from(path).map_err(|error| refused(error.to_string()))?
        }
    };
    let config = runtime
        .block_on(Config::from_custom_kubeconfig(
            never_interactive(kubeconfig),
            &KubeConfigOptions::default(),
        ))
        .map_err(|error| refused(error.to_string()))?;
    finish(config)
}

/// A program that asks for a password would ask a server's standard input, for ever.
fn never_interactive(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    for user in &mut kubeconfig.auth_infos {
        if let Some(exec) = user.auth_info.as_mut().and_then(|auth| auth.exec.as_mut()) {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
    }
    kubeconfig
}

fn finish(mut config: Config) -> Result<Client, Error> {
    // The pass has its own deadline, and its own back-off.
    config.read_timeout = None;
    config.default_retry = false;
    Client::try_from(config).map_err(|error| Error::NoCredentials {
        why: peer_text(&with_causes(&error)),
    })
}

fn unreachable(error: &kube::Error) -> Error {
    Error::ApiUnreachable {
        why: peer_text(&with_causes(error)),
    }
}

/// An error with its innermost cause: "client error" alone tells nobody that a certificate has expired.
fn with_causes(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let mut innermost = None;
    let mut cause = error.source();
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    match innermost {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        Some(_) | None => text,
    }
}

/// A whole body; `None` when it is longer than `most`.
async fn collect(mut body: Body, most: usize) -> Result<Option<Vec<u8>>, Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Closed {
            why: peer_text(&with_causes(&error)),
        })?;
        if let Some(data) = frame.data_ref() {
            if bytes.len().saturating_add(data.len()) > most {
                return Ok(None);
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(Some(bytes))
}
