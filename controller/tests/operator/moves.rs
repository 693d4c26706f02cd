//! A RouterConfig that names another fleet while it is served.

use continuum_config::Build;
use continuum_messages::{Assembler, push::from_controller::Message};
use continuum_testkit::kube::fleet::Worker;
use jiff::Timestamp;

use crate::{
    router::Session,
    support::{Operator, cluster, condition, namespace, routerconfig},
};

/// What a router knows of its fleet.
#[derive(Default)]
struct Router {
    assembler: Assembler,
    /// What the newest configuration names.
    named: Vec<String>,
    /// What views are of, as they are told.
    told: Vec<String>,
}

impl Router {
    /// Goes on until a view of what the configuration names has this many workers. Of each view, says what it is of.
    async fn sees(&mut self, session: &mut Session, workers: usize) -> Vec<(Vec<String>, usize)> {
        let mut seen = Vec::new();
        loop {
            match session.told().await {
                Message::Config(update) => {
                    let loaded = continuum_config::parse(&update.text, &|_| None, Build::FULL).unwrap();
                    let config = loaded.config;
                    let upstream = config.controller.unwrap().upstream.unwrap();
                    let origins = config.dynamo.discovery.origins(upstream.source());
                    self.named = origins.into_values().collect();
                }
                Message::Source(state) => self.told = state.origins,
                Message::View(part) => {
                    if let Some(whole) = self.assembler.push(part, Timestamp::UNIX_EPOCH).unwrap() {
                        seen.push((self.told.clone(), whole.view.workers.len()));
                    }
                }
                Message::Welcome(_) | Message::Heartbeat(_) => {}
            }
            if self.told == self.named
                && seen
                    .last()
                    .is_some_and(|last| *last == (self.told.clone(), workers))
            {
                return seen;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_view_is_of_is_what_the_config_of_its_routers_names() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let (ns, other) = (
        namespace(cluster, "moves").await,
        cluster.namespace("moved-to").await,
    );
    let operator = Operator::start(client.clone(), &ns, &[&format!("--fleet-namespaces={other}")]).await;
    for (namespace, pod) in [(&ns, "here-0"), (&other, "there-0"), (&other, "there-1")] {
        cluster
            .write_worker(&Worker::new(namespace, pod, "decode", "m"))
            .await;
    }
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 1}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let mut session = Session::of_pod(&client, &ns, operator.port).await;
    let mut router = Router::default();
    router.sees(&mut session, 1).await;
    let here = router.named.clone();
    assert!(here.len() == 1 && here[0].contains(&ns), "{here:?}");

    cluster
        .apply(&routerconfig(&ns, "chat", &other, "{replicas: 1}"))
        .await;
    let seen = router.sees(&mut session, 2).await;
    let there = router.named.clone();
    assert!(there.len() == 1 && there[0].contains(&other), "{there:?}");
    for (of, workers) in seen {
        // The two fleets have different numbers of workers: none was ever told as the other's.
        assert!(
            (of == here && workers <= 1) || (of == there && workers != 1),
            "{of:?}: {workers}"
        );
    }
    operator.stop().await;
}
