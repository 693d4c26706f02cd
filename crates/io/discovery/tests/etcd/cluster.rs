//! Three members: one may die, whoever it is.

use continuum_testkit::etcd::{Etcd, Options, cluster};
use etcd_client::Client;
use tokio::time::{Duration, sleep};

use crate::support::{Router, config, ids, instance, namespace};

async fn members() -> Vec<Etcd> {
    tokio::task::spawn_blocking(|| cluster(3, &Options::default()))
        .await
        .unwrap()
}

fn urls(members: &[Etcd]) -> Vec<String> {
    members.iter().map(|member| member.url().to_owned()).collect()
}

/// The index of the member that leads.
async fn leader(members: &[Etcd]) -> usize {
    for (index, member) in members.iter().enumerate() {
        if member.pid().is_none() {
            continue;
        }
        let mut client = Client::connect([member.url()], None).await.unwrap();
        let status = client.status().await.unwrap();
        if status.leader() == status.header().unwrap().member_id() {
            return index;
        }
    }
    panic!("no member leads");
}

/// Writes through one member, again until it has a leader.
async fn put(member: &Etcd, namespace: &str, id: u64) {
    let mut client = Client::connect([member.url()], None).await.unwrap();
    let (key, value) = instance(namespace, "decode", id);
    for _ in 0..200 {
        if client.put(key.clone(), value.to_string(), None).await.is_ok() {
            return;
        }
        // An election is under way; its end has no event for a client.
        sleep(Duration::from_millis(100)).await;
    }
    panic!("the cluster takes no writes");
}

#[tokio::test]
async fn the_leader_may_die_and_come_back() {
    let mut members = members().await;
    let namespace = namespace();
    put(&members[0], &namespace, 1).await;
    let router = Router::start(config(&urls(&members), &namespace));
    router.ids(&[1]).await;

    let dead = leader(&members).await;
    members[dead].kill();
    put(&members[(dead + 1) % 3], &namespace, 2).await;
    router.ids(&[1, 2]).await;
    members[dead].restart();
    let next = leader(&members).await;
    members[next].kill();
    put(&members[dead], &namespace, 3).await;
    router.ids(&[1, 2, 3]).await;
    router.stop().await;
}

#[tokio::test]
async fn a_member_without_a_leader_ends_the_session() {
    let mut members = members().await;
    let namespace = namespace();
    put(&members[0], &namespace, 1).await;
    // The only endpoint is the member that will be left over.
    let router = Router::start(config(&[members[0].url().to_owned()], &namespace));
    router.ids(&[1]).await;
    members[1].kill();
    members[2].kill();
    let status = router
        .state("without a leader", |status| {
            !status.connected && status.last_error.is_some()
        })
        .await;
    assert!(
        status.last_error.as_deref().unwrap().contains("leader"),
        "{:?}",
        status.last_error
    );
    assert_eq!(ids(&router.discovery.fleet().load()), [1], "the last view stays");
    tokio::task::spawn_blocking(move || {
        members[1].restart();
        members
    })
    .await
    .unwrap()[1]
        .pid()
        .unwrap();
    router.stop().await;
}

#[tokio::test]
async fn dead_endpoints_are_passed_over() {
    let mut members = members().await;
    let namespace = namespace();
    put(&members[0], &namespace, 1).await;
    let list = urls(&members);
    members[0].kill();
    let router = Router::start(config(&list, &namespace));
    router.ids(&[1]).await;
    assert_eq!(
        router.status().passes,
        1,
        "the pass goes on to the next member by itself"
    );
    router.stop().await;
}
