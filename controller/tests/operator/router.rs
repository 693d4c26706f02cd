//! Router pods that exist in the API server alone: what they say to the operator is the test's choice.

use continuum_messages::{
    ConfigId,
    limits::{MAX_FROM_CONTROLLER_BYTES, PROTOCOL},
    push::{self, from_controller, from_router, push_client::PushClient},
};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use crate::support::{LIMIT, wait_for};

/// The pod `name` of a RouterConfig, and the token that the kubelet would give it.
pub(crate) async fn token(client: &Client, namespace: &str, account: &str, name: &str) -> String {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "serviceAccountName": account, "containers": [{ "name": "router", "image": "none" }] },
    }))
    .unwrap();
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(vec!["continuum-router-controller".to_owned()]),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name.to_owned()),
                uid: pod.uid(),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let params = PostParams::default();
    let answer = accounts.create_token_request(account, &params, &request).await;
    answer.unwrap().status.unwrap().token.unwrap()
}

/// One session.
pub(crate) struct Session {
    sender: mpsc::Sender<push::FromRouter>,
    incoming: Streaming<push::FromController>,
    /// What it says to have in force.
    pub(crate) config: Option<ConfigId>,
}

/// Connects to the port, trusting the authorities of `ca`.
pub(crate) async fn connect(port: u16, ca: &str) -> Result<Channel, tonic::transport::Error> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    Endpoint::from_shared(format!("https://localhost:{port}"))
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect()
        .await
}

impl Session {
    /// Of a new pod of the RouterConfig `chat`, which trusts what its ConfigMap says.
    pub(crate) async fn of_pod(client: &Client, namespace: &str, port: u16) -> Self {
        let map = wait_for(client, namespace, "ConfigMap", "chat-router", |_| true).await;
        let ca = map["data"]["ca.crt"].as_str().unwrap();
        let token = token(client, namespace, "chat-router", "chat-router-test").await;
        Self::open(port, ca, &token).await
    }

    pub(crate) async fn open(port: u16, ca: &str, token: &str) -> Self {
        let channel = connect(port, ca).await.unwrap();
        let mut client = PushClient::new(channel).max_decoding_message_size(MAX_FROM_CONTROLLER_BYTES);
        let (sender, outgoing) = mpsc::channel(64);
        let hello = push::Hello {
            protocol: PROTOCOL,
            version: "test".to_owned(),
            follow: Some(push::Follow {
                follow: true,
                ..push::Follow::default()
            }),
        };
        let this = from_router::Message::Hello(hello);
        sender.send(message(this)).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(outgoing));
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        let incoming = client.session(request).await.unwrap().into_inner();
        Self {
            sender,
            incoming,
            config: None,
        }
    }

    /// Goes on until a config comes that holds `text`; says all the time what is in force.
    pub(crate) async fn config_with(&mut self, text: &str) -> ConfigId {
        let update = self.update_with(text).await;
        ConfigId::try_from(update.id.as_ref().unwrap()).unwrap()
    }

    /// The same, as it came.
    pub(crate) async fn update_with(&mut self, text: &str) -> push::ConfigUpdate {
        let wait = async {
            loop {
                let came = self.incoming.message().await.unwrap().unwrap();
                match came.message.unwrap() {
                    from_controller::Message::Config(config) if config.text.contains(text) => {
                        return config;
                    }
                    from_controller::Message::Heartbeat(_) => self.report(None).await,
                    from_controller::Message::Config(_)
                    | from_controller::Message::Welcome(_)
                    | from_controller::Message::View(_)
                    | from_controller::Message::Source(_) => {}
                }
            }
        };
        timeout(LIMIT, wait).await.unwrap()
    }

    /// Goes on until that is done; says all the time what is in force.
    pub(crate) async fn until<T>(&mut self, done: impl Future<Output = T>) -> T {
        let lives = async {
            loop {
                self.told().await;
            }
        };
        tokio::select! {
            done = done => done,
            () = lives => unreachable!(),
        }
    }

    /// What comes next; says all the time what is in force.
    pub(crate) async fn told(&mut self) -> from_controller::Message {
        let came = timeout(LIMIT, self.incoming.message()).await.unwrap().unwrap();
        let told = came.unwrap().message.unwrap();
        if matches!(told, from_controller::Message::Heartbeat(_)) {
            self.report(None).await;
        }
        told
    }

    /// Says what it has in force, and what it refused.
    pub(crate) async fn report(&self, refused: Option<(ConfigId, &str)>) {
        let report = push::Report {
            config: self.config.map(Into::into),
            ready: true,
            refused: refused.map(|(id, error)| push::RefusedConfig {
                config: Some(id.into()),
                error: error.to_owned(),
            }),
            ..push::Report::default()
        };
        let report = from_router::Message::Report(report);
        self.sender.send(message(report)).await.unwrap();
    }
}

const fn message(message: from_router::Message) -> push::FromRouter {
    push::FromRouter {
        message: Some(message),
    }
}
