//! Who is in the view of the source `kubernetes_pods`.

use continuum_config::model::{DiscoverySource::KubernetesPods, KubernetesModel};
use continuum_fleet::view::Role;
use continuum_testkit::kube::fleet::Worker;

use crate::support::{Router, cluster, config};

#[tokio::test]
async fn pods_are_workers_while_they_are_ready() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("pods").await;
    let mut prefill = Worker::new(&namespace, "p-0", "prefill", "ignored");
    let decode = Worker::new(&namespace, "d-0", "decode", "ignored");
    let mut frontend = Worker::new(&namespace, "f-0", "worker", "ignored");
    frontend.component_type = "frontend".into();
    for worker in [&prefill, &decode, &frontend] {
        cluster.write_pod(worker).await;
    }
    let router = Router::start(config(KubernetesPods, &namespace), cluster.kubeconfig());
    router.ids(&[prefill.instance(), decode.instance()]).await;
    router
        .fleet("roles, a model, no card", |view| {
            let of = |worker: &Worker| {
                view.workers
                    .values()
                    .find(|known| known.key.instance.raw() == worker.instance())
                    .map(|known| known.role)
            };
            of(&prefill) == Some(Role::Prefill)
                && of(&decode) == Some(Role::Decode)
                && view.workers.values().all(|worker| worker.card.is_none())
        })
        .await;
    let signals = router.status().signals;
    assert!(!signals.load && !signals.capacity);
    prefill.ready = false;
    cluster.write_pod(&prefill).await;
    router.ids(&[decode.instance()]).await;
    cluster.remove_pod(&namespace, "d-0").await;
    router.ids(&[]).await;
}

#[tokio::test]
async fn another_model_is_another_view() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("models").await;
    let worker = Worker::new(&namespace, "w-0", "worker", "ignored");
    cluster.write_pod(&worker).await;
    let mut config = config(KubernetesPods, &namespace);
    let router = Router::start(config.clone(), cluster.kubeconfig());
    router.ids(&[worker.instance()]).await;
    config.dynamo.discovery.kubernetes.model = None;
    config.dynamo.discovery.kubernetes.models = vec![KubernetesModel {
        component: "Backend".into(),
        model: "m".into(),
        dynamo_namespace: None,
    }];
    router.reload(|running| running.clone_from(&config));
    // Components are compared with their case.
    router.ids(&[]).await;
    config.dynamo.discovery.kubernetes.models[0].component = "backend".into();
    router.reload(|running| *running = config);
    router.ids(&[worker.instance()]).await;
}

#[tokio::test]
async fn namespaces_come_and_go_without_a_gap_for_the_others() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("several").await;
    let [first, second, third] = ["prod", "canary", "test"].map(|name| {
        let mut worker = Worker::new(&namespace, &format!("w-{name}"), "worker", "ignored");
        worker.dynamo_namespace = name.into();
        worker
    });
    for worker in [&first, &second, &third] {
        cluster.write_pod(worker).await;
    }
    let mut config = config(KubernetesPods, &namespace);
    config.dynamo.discovery.kubernetes.dynamo_namespaces = vec!["prod".into(), "canary".into()];
    let router = Router::start(config.clone(), cluster.kubeconfig());
    router.ids(&[first.instance(), second.instance()]).await;
    let seen = router.first_seen(first.instance());
    config.dynamo.discovery.kubernetes.dynamo_namespaces = vec!["prod".into(), "test".into()];
    // Whoever sees `prod` is not told of anything.
    let states = router.discovery.status();
    let undisturbed = states.wait_for(|status| {
        let prod = status.looked_for.iter().any(|name| name.as_str() == "prod");
        assert!(
            status.connected && prod && status.last_error.is_none(),
            "{status:?}"
        );
        status.looked_for.len() == 2 && status.looked_for.iter().any(|name| name.as_str() == "test")
    });
    let reload = async {
        router.reload(|running| *running = config.clone());
        router.ids(&[first.instance(), third.instance()]).await;
    };
    tokio::join!(undisturbed, reload);
    assert_eq!(router.first_seen(first.instance()), seen);
    assert_eq!((router.status().passes, router.status().restarts), (2, 0));
    assert!(router.status().synced);
    // What nobody wants any more goes without another list.
    config.dynamo.discovery.kubernetes.dynamo_namespaces = vec!["prod".into()];
    router.reload(|running| *running = config);
    router.ids(&[first.instance()]).await;
    let status = router
        .state("one name", |status| status.looked_for.len() == 1)
        .await;
    assert!(
        status.connected && status.synced && status.passes == 2,
        "{status:?}"
    );
}
