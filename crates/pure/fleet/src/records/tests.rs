use super::{card::Claim, *};
use crate::view::{Card, KvTransferEnforcement, Role};

fn place(id: u64) -> Place<'static> {
    Place {
        namespace: "ns",
        component: "decode",
        endpoint: "generate",
        id: InstanceId::new(id),
    }
}

#[test]
fn an_id_is_a_number_or_hex_text() {
    for (id, raw) in [
        ("7465265302745285", 7_465_265_302_745_285_u64),
        (r#""1a859e868630c5""#, 7_465_265_302_745_285),
        (r#""0x1A859E868630C5""#, 7_465_265_302_745_285),
        ("18446744073709551615", u64::MAX),
        (r#""ffffffffffffffff""#, u64::MAX),
    ] {
        assert_eq!(
            instance(&place(raw), &format!(r#"{{"instance_id":{id}}}"#)),
            Ok(()),
            "{id}"
        );
    }
    for id in [
        "null",
        "-1",
        "1.5",
        "1e3",
        r#""""#,
        r#""xyz""#,
        "[1]",
        "{}",
        "18446744073709551616",
        "true",
    ] {
        let refused = instance(&place(1), &format!(r#"{{"instance_id":{id}}}"#));
        assert_eq!(refused, Err(Refusal::Malformed(Malformed::NoId)), "{id}");
    }
}

#[test]
fn the_key_alone_decides_the_namespace() {
    let value = r#"{"type":"Endpoint","namespace":"elsewhere","component":"decode","endpoint":"generate","instance_id":1}"#;
    assert_eq!(instance(&place(1), value), Ok(()));
    let sparse = r#"{"instance_id":1,"component":null,"endpoint":"","brand_new":[{}]}"#;
    assert_eq!(instance(&place(1), sparse), Ok(()));
    for (value, what) in [
        (r#"{"instance_id":2}"#, Mismatch::Id),
        (r#"{"instance_id":1,"component":"prefill"}"#, Mismatch::Scope),
        (r#"{"instance_id":1,"endpoint":"Generate"}"#, Mismatch::Scope),
    ] {
        assert_eq!(
            instance(&place(1), value),
            Err(Refusal::Mismatch(what)),
            "{value}"
        );
    }
}

#[test]
fn which_card_a_record_is() {
    let scoped = |suffix: Option<&str>| Slot::Scoped {
        component: "decode".into(),
        suffix: suffix.map(Arc::from),
    };
    for (suffix, fields, expected) in [
        (
            None,
            r#""component":"decode","endpoint":"generate""#,
            Ok(Some(scoped(None))),
        ),
        (
            None,
            r#""component":"decode","endpoint":"generate","model_suffix":null"#,
            Ok(Some(scoped(None))),
        ),
        (None, r#""component":"decode""#, Ok(Some(scoped(None)))),
        (None, r#""endpoint":"generate""#, Ok(Some(scoped(None)))),
        (
            None,
            r#""component":"","endpoint":"""#,
            Ok(Some(Slot::Unscoped { suffix: None })),
        ),
        (
            Some("ad"),
            r#""component":"decode","endpoint":"generate","model_suffix":"ad""#,
            Ok(Some(scoped(Some("ad")))),
        ),
        (
            Some("ad"),
            r#""component":"decode""#,
            Ok(Some(scoped(Some("ad")))),
        ),
        (
            None,
            r#""component":"decode","model_suffix":"ad""#,
            Ok(Some(scoped(Some("ad")))),
        ),
        (
            Some("ad"),
            r#""component":"decode","model_suffix":"other""#,
            Err(Refusal::Mismatch(Mismatch::Scope)),
        ),
        (
            None,
            r#""component":"other""#,
            Err(Refusal::Mismatch(Mismatch::Scope)),
        ),
    ] {
        let value = format!(r#"{{"instance_id":1,{fields},"card_json":{{}}}}"#);
        let slot = model(&place(1), suffix, &value).map(|model| model.map(|model| model.slot));
        assert_eq!(slot, expected, "{suffix:?} {fields}");
    }
    let bare = Place {
        component: "",
        endpoint: "",
        ..place(1)
    };
    let other = model(
        &bare,
        None,
        r#"{"instance_id":1,"component":"c","endpoint":"embed"}"#,
    );
    assert!(matches!(other, Ok(None)), "{other:?}");
}

#[test]
fn transports_of_event_channels() {
    let on = Subject {
        namespace: "ns".into(),
        component: Some("decode".into()),
        endpoint: None,
        topic: "kv_metrics".into(),
        id: PublisherId::new(5),
    };
    let zmq = Transport::Zmq {
        endpoint: "tcp://[::1]:5".into(),
    };
    let broker = Transport::ZmqBroker {
        xpub_endpoints: vec!["tcp://b:1".to_owned()].into(),
    };
    let many = format!(
        r#"{{"kind":"ZmqBroker","config":{{"xpub_endpoints":[{}"tcp://b:1"]}}}}"#,
        r#""tcp://b:1","#.repeat(8)
    );
    let malformed = |why| Err(Refusal::Malformed(why));
    for (transport, expected) in [
        (
            r#"{"kind":"Zmq","config":{"endpoint":"tcp://[::1]:5"}}"#,
            Ok(Some(zmq)),
        ),
        (
            r#"{"kind":"ZmqBroker","config":{"xsub_endpoints":[],"xpub_endpoints":["tcp://b:1"]}}"#,
            Ok(Some(broker)),
        ),
        (r#"{"kind":"Nats","config":{"subject_prefix":"s"}}"#, Ok(None)),
        (r#"{"kind":"Carrier pigeon"}"#, Ok(None)),
        (
            r#"{"kind":"Zmq","config":{"endpoint":"ipc:///tmp/x"}}"#,
            malformed(Malformed::Transport),
        ),
        (
            r#"{"kind":"Zmq","config":{"endpoint":"tcp://"}}"#,
            malformed(Malformed::Transport),
        ),
        (r#"{"kind":"Zmq","config":{}}"#, malformed(Malformed::Transport)),
        (
            r#"{"kind":"ZmqBroker","config":{"xpub_endpoints":[]}}"#,
            malformed(Malformed::Transport),
        ),
        (many.as_str(), malformed(Malformed::TooLong)),
        ("null", malformed(Malformed::Transport)),
        ("7", malformed(Malformed::Transport)),
    ] {
        assert_eq!(
            channel(&on, &format!(r#"{{"instance_id":5,"transport":{transport}}}"#)),
            expected,
            "{transport}"
        );
    }
    let sound = r#""transport":{"kind":"Nats"}"#;
    for (fields, expected) in [
        (
            r#""instance_id":5,"scope":{"kind":"component","namespace":"x","component":"decode"}"#,
            Ok(None),
        ),
        (
            r#""instance_id":5,"scope":null,"namespace":"n","component":"c""#,
            Ok(None),
        ),
        (r#""instance_id":6"#, Err(Refusal::Mismatch(Mismatch::Id))),
        (
            r#""instance_id":5,"topic":"kv-events""#,
            Err(Refusal::Mismatch(Mismatch::Scope)),
        ),
        (
            r#""instance_id":5,"scope":{"kind":"namespace","name":"ns"}"#,
            Err(Refusal::Mismatch(Mismatch::Scope)),
        ),
        (
            r#""instance_id":5,"scope":{"kind":"component","component":"other"}"#,
            Err(Refusal::Mismatch(Mismatch::Scope)),
        ),
        (
            r#""instance_id":5,"scope":{"kind":"galaxy"}"#,
            malformed(Malformed::Type),
        ),
        (r#""topic":"kv_metrics""#, malformed(Malformed::NoId)),
    ] {
        assert_eq!(
            channel(&on, &format!("{{{fields},{sound}}}")),
            expected,
            "{fields}"
        );
    }
}

fn read(json: &str) -> Card {
    card::parse(json).card
}

#[test]
fn every_field_of_a_card_is_optional() {
    let empty = read("{}");
    assert_eq!(card::parse("{}").claim, Claim::Absent);
    assert_eq!(
        (empty.display_name.clone(), empty.ranks.start, empty.ranks.size),
        (None, 0, 1)
    );
    // Fields of foreign types are absent, the others are read.
    let odd = r#"{"display_name":7,"name":"m","aliases":"no","worker_type":["decode"],"needs":{},"kv_cache_block_size":"16",
        "context_length":-1,"architectural_max_context_length":8192,"runtime_config":{"total_kv_blocks":"x",
        "max_num_seqs":64,"topology_domains":[],"enable_eagle":"yes"}}"#;
    let card = read(odd);
    assert_eq!(card.display_name, Some("m".into()));
    assert_eq!(card::parse(odd).claim, Claim::Unrecognised);
    assert_eq!(
        (card.block_size, card.context_length, card.capacity.max_num_seqs),
        (None, Some(8192), Some(64))
    );
    assert_eq!(card.capacity.total_kv_blocks, None);
    // Names end up in log lines and answers: one with a line break is none.
    assert_eq!(read(r#"{"display_name":"a\nb"}"#).display_name, None);
    // Nothing typed can be read of it, and the worker still has a card.
    assert_eq!(read(r#"{"display_name":"m","display_name":"n"}"#), empty);
    assert_eq!(read(r#"{"runtime_config":[]}"#).ranks.size, 1);
}

#[test]
fn roles_and_needs() {
    for (json, claim) in [
        (r#"{"worker_type":"Prefill"}"#, Claim::Explicit(Role::Prefill)),
        (r#"{"worker_type":"encode"}"#, Claim::Explicit(Role::Encode)),
        (r#"{"worker_type":"unknown"}"#, Claim::Unrecognised),
        (r#"{"worker_type":"turbo"}"#, Claim::Unrecognised),
        (
            r#"{"worker_type":null,"model_type":"Chat | Completions | Prefill"}"#,
            Claim::OldPrefill,
        ),
        (r#"{"model_type":"Chat | Prefillish"}"#, Claim::Absent),
        (
            r#"{"worker_type":"decode","model_type":"Prefill"}"#,
            Claim::Explicit(Role::Decode),
        ),
    ] {
        assert_eq!(card::parse(json).claim, claim, "{json}");
    }
    let needs = |json: &str| read(&format!(r#"{{"needs":{json}}}"#)).needs;
    assert_eq!(needs(r#"[["prefill"]]"#), [[Role::Prefill]]);
    assert_eq!(
        needs(r#"[["Prefill","encode"],["aggregated"]]"#),
        [vec![Role::Prefill, Role::Encode], vec![Role::Aggregated]]
    );
    assert_eq!(needs(r#"["decode"]"#), [[Role::Decode]]);
    assert_eq!(needs("[]"), Vec::<Vec<Role>>::new());
    assert_eq!(
        needs(r#"[["turbo"]]"#),
        [Vec::<Role>::new()],
        "whom we do not know binds nobody"
    );
}

#[test]
fn numbers_in_any_spelling_within_their_range() {
    let size = |json: &str| read(&format!(r#"{{"kv_cache_block_size":{json}}}"#)).block_size;
    assert_eq!([size("16"), size("16.0"), size("1.6e1")], [Some(16); 3]);
    assert_eq!(
        [
            size("0"),
            size("65537"),
            size("-16"),
            size("16.5"),
            size("1e400"),
            size("null")
        ],
        [None; 6]
    );
    assert_eq!(size("65536"), Some(65_536));
    let context = |card: &str, runtime: &str, limit: &str| {
        read(&format!(
            r#"{{"context_length":{card},"architectural_max_context_length":{limit},"runtime_config":{{"context_length":{runtime}}}}}"#
        ))
        .context_length
    };
    assert_eq!(context("2", "1", "3"), Some(1));
    assert_eq!(context("2", "0", "3"), Some(2));
    assert_eq!(context("0", "null", "3"), Some(3));
    assert_eq!(context("0", "0", "0"), None);
}

#[test]
fn topology_and_other_runtime_fields() {
    let runtime = |fields: &str| read(&format!(r#"{{"runtime_config":{{{fields}}}}}"#));
    let card = runtime(r#""topology_domains":{"zone":"a","n":7},"kv_transfer_domain":"zone""#);
    assert_eq!(card.topology_domains.get("zone").map(String::as_str), Some("a"));
    assert_eq!(card.topology_domains.len(), 1);
    assert_eq!(
        card.kv_transfer.map(|t| t.enforcement),
        Some(KvTransferEnforcement::Required)
    );
    for (fields, weight) in [
        ("", 1.0),
        (r#","kv_transfer_preferred_weight":0.25"#, 0.25),
        (r#","kv_transfer_preferred_weight":9"#, 1.0),
    ] {
        let card = runtime(&format!(
            r#""kv_transfer_domain":"zone","kv_transfer_enforcement":"preferred"{fields}"#
        ));
        assert_eq!(
            card.kv_transfer.map(|t| t.enforcement),
            Some(KvTransferEnforcement::Preferred { weight })
        );
    }
    assert!(runtime(r#""disaggregated_endpoint":"dynamo/decode/generate""#).has_disaggregated_endpoint);
    assert!(runtime(r#""disaggregated_endpoint":{"bootstrap_host":"h"}"#).has_disaggregated_endpoint);
    assert!(!runtime(r#""disaggregated_endpoint":null"#).has_disaggregated_endpoint);
    assert!(
        read(r#"{"router_config":{}}"#).has_router_config
            && !read(r#"{"router_config":null}"#).has_router_config
    );
    assert!(runtime(r#""enable_eagle":true"#).enable_eagle);
    assert_eq!(
        runtime(r#""kv_event_source_mode":"state_agent_v2""#)
            .kv_event_source_mode
            .as_deref(),
        Some("state_agent_v2")
    );
    for (mode, expected) in [("null", None), ("5", Some("")), (r#""""#, Some(""))] {
        let card = runtime(&format!(r#""kv_event_source_mode":{mode}"#));
        assert_eq!(card.kv_event_source_mode.as_deref(), expected, "{mode}");
    }
    for (endpoint, expected) in [
        (r#"{"namespace":"n","component":"c","name":"kv"}"#, Some("n")),
        ("null", None),
        (r#""n.c.kv""#, Some("")),
        (r#"{"component":"c","name":"kv"}"#, Some("")),
        (r#"{"namespace":7}"#, Some("")),
        ("{}", Some("")),
    ] {
        let card = runtime(&format!(r#""kv_state_endpoint":{endpoint}"#));
        assert_eq!(card.kv_state_namespace.as_deref(), expected, "{endpoint}");
    }
}
