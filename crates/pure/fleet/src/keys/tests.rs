use super::*;

fn graph(name: &str) -> Graph {
    Graph::from(name)
}

#[test]
fn prefixes_are_what_a_reader_may_be_allowed_to_range_on() {
    for (bucket, how, expected) in [
        (
            Bucket::Instances,
            NamespaceMatch::Generation,
            "v1/instances/ns.one",
        ),
        (Bucket::Instances, NamespaceMatch::Exact, "v1/instances/ns.one/"),
        (Bucket::Cards, NamespaceMatch::Prefix, "v1/mdc/ns.one"),
        (
            Bucket::EventChannels,
            NamespaceMatch::Generation,
            "v1/event_channels/namespace/ns%2Eone",
        ),
        (
            Bucket::EventSources,
            NamespaceMatch::Exact,
            "v1/event_sources/namespace/ns%2Eone/",
        ),
    ] {
        assert_eq!(bucket.range_prefix(&graph("ns.one"), how), expected);
    }
    assert_eq!(
        Bucket::EventChannels.range_prefix(&graph("a_b-c"), NamespaceMatch::Exact),
        "v1/event_channels/namespace/a_b-c/"
    );
}

#[test]
fn instance_and_card_keys() {
    let at = Place {
        namespace: "dynamo",
        component: "prefill",
        endpoint: "generate",
        id: InstanceId::new(0x1a),
    };
    assert_eq!(
        Key::parse("v1/instances/dynamo/prefill/generate/1a"),
        Ok(Key::Instance { at: at.clone() })
    );
    assert_eq!(
        Key::parse("v1/instances/dynamo/prefill/generate/001A"),
        Ok(Key::Instance { at: at.clone() })
    );
    assert_eq!(
        Key::parse("v1/mdc/dynamo/prefill/generate/1a"),
        Ok(Key::Card {
            at: at.clone(),
            suffix: None
        })
    );
    assert_eq!(
        Key::parse("v1/mdc/dynamo/prefill/generate/1a/my-lora_v1"),
        Ok(Key::Card {
            at,
            suffix: Some("my-lora_v1")
        })
    );
    assert!(
        matches!(Key::parse("v1/mdc/dynamo///1a"), Ok(Key::Card { at, suffix: None }) if at.component.is_empty())
    );
}

#[test]
fn event_keys_of_three_scopes_and_the_old_one() {
    let subject = |component: Option<&'static str>, endpoint: Option<&'static str>| Subject {
        namespace: "ns.one".into(),
        component: component.map(Cow::Borrowed),
        endpoint: endpoint.map(Cow::Borrowed),
        topic: "kv_metrics".into(),
        id: PublisherId::new(0x1f),
    };
    for (key, on) in [
        ("namespace/ns%2Eone/topic/kv_metrics/1f", subject(None, None)),
        (
            "namespace/ns%2eone/component/c/topic/kv_metrics/1F",
            subject(Some("c"), None),
        ),
        (
            "namespace/ns%2Eone/component/c/endpoint/generate/topic/kv_metrics/01f",
            subject(Some("c"), Some("generate")),
        ),
        ("ns.one/c/kv_metrics/1f", subject(Some("c"), None)),
        ("ns.one//kv_metrics/1f", subject(None, None)),
    ] {
        assert_eq!(
            Key::parse(&format!("v1/event_channels/{key}")),
            Ok(Key::Channel { on }),
            "{key}"
        );
    }
    assert_eq!(
        Key::parse("v1/event_sources/namespace/ns%2Eone/topic/kv_metrics/1f"),
        Ok(Key::Source {
            on: subject(None, None)
        })
    );
}

#[test]
fn keys_of_no_grammar_are_refused() {
    let long = format!("v1/instances/{}/c/e/1", "n".repeat(MAX_NAME_BYTES + 1));
    for key in [
        "",
        "v1",
        "v1/instances",
        "v1/instances/",
        "v1/instances/a/b/c",
        "v1/instances/a/b/c/xyz",
        "v1/instances/a/b/c/1/2",
        "v1/instances/a//c/1",
        "v1/instances//b/c/1",
        "v1/instances/a/b/c/11111111111111111",
        "v1/mdc/a/b/c/1/",
        "v1/mdc/a/b/c/1/s/t",
        "v1/other/a/b/c/1",
        "v1/event_channels/namespace/a/topic/t",
        "v1/event_channels/namespace/%ff/topic/t/1",
        "v1/event_channels/namespace/a/component//topic/t/1",
        "v1/event_channels/namespace/a/endpoint/b/topic/t/1",
        "v1/event_sources/a/b/t/1",
        "v1/instances/a/b\nc/generate/1",
        "v1/event_channels/namespace/a%0Ab/topic/t/1",
        long.as_str(),
    ] {
        assert_eq!(Key::parse(key), Err(Malformed::Key), "{key}");
    }
    assert_eq!(
        Key::parse(&"v".repeat(MAX_KEY_BYTES + 1)),
        Err(Malformed::KeyTooLong)
    );
}
