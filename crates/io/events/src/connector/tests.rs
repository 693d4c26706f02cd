use tokio::net::TcpListener;

use super::*;

fn target(endpoint: &str) -> Target {
    Target {
        family: Topic::KvMetrics,
        namespace: None,
        publisher: None,
        endpoint: endpoint.into(),
    }
}

fn direct(networks: &[&str]) -> Direct {
    Direct::new(
        networks
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<IpNet>>(),
    )
}

async fn refusal(connector: &Direct, endpoint: &str) -> Error {
    match connector.connect(&target(endpoint)).await {
        Ok(_) => panic!("connected to {endpoint}"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn allowed_addresses_and_names_are_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for networks in [&[][..], &["127.0.0.0/8"], &["10.0.0.0/8", "127.0.0.1/32"]] {
        for host in ["127.0.0.1", "localhost"] {
            let endpoint = format!("tcp://{host}:{port}");
            direct(networks)
                .connect(&target(&endpoint))
                .await
                .map(drop)
                .expect("allowed");
        }
    }
}

#[tokio::test]
async fn other_addresses_are_never_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connector = direct(&["10.0.0.0/8", "fd00::/8"]);
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"] {
        let error = refusal(&connector, &format!("tcp://{host}:{port}")).await;
        assert!(
            matches!(error, Error::NotAllowed) && error.is_refusal(),
            "{host}: {error}"
        );
    }
    assert!(
        allows(
            &connector.settings.borrow().allowed,
            "::ffff:10.1.2.3".parse().unwrap()
        ),
        "mapped addresses are what they map"
    );
    let nobody_came = timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(nobody_came.is_err());
}

#[tokio::test]
async fn endpoints_of_another_shape_are_refused() {
    let connector = direct(&[]);
    for endpoint in [
        "",
        "tcp://",
        "tcp://h",
        "ipc:///tmp/x",
        "http://h:1",
        "tcp://h:1/x",
        "tcp://u@h:1",
        "h:1",
    ] {
        let error = refusal(&connector, endpoint).await;
        assert!(
            matches!(error, Error::Endpoint) && error.is_refusal(),
            "{endpoint}: {error}"
        );
    }
}

#[tokio::test]
async fn a_closed_port_is_out_of_reach_not_refused() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = refusal(&direct(&[]), &format!("tcp://127.0.0.1:{port}")).await;
    assert!(
        matches!(error, Error::Connect(_)) && !error.is_refusal(),
        "{error}"
    );
}

#[tokio::test]
async fn beyond_the_cap_a_connection_waits_for_its_turn_and_loses_no_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let connector = direct(&[]);
    let all = u32::try_from(MAX_CONNECTS).unwrap();
    let others = connector.connects.acquire_many(all).await.unwrap();
    let target = target(&endpoint);
    let mut connecting = connector.connect(&target);
    tokio::select! {
        biased;
        _ = &mut connecting => panic!("nobody's turn"),
        () = tokio::task::yield_now() => {}
    }
    drop(others);
    connecting.await.map(drop).expect("its turn");
    assert_eq!(connector.connects.available_permits(), MAX_CONNECTS);
}
