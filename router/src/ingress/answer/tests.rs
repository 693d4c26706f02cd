use continuum_fleet::ids::{InstanceId, Rank};
use proptest::prelude::*;

use super::*;
use bytes::Bytes;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v)))
        .collect()
}

fn shown(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let mut all: Vec<_> = headers
        .iter()
        .map(|(k, v)| (k.as_str(), v.to_str().unwrap()))
        .collect();
    all.sort_unstable();
    all
}

const PAIR: Made<'_> = Made {
    path: RoutingPath::Disaggregated,
    backend: "frontend-1",
    decode: Some((
        "dynamo",
        Pinned {
            instance: InstanceId::new(u64::MAX),
            rank: Some(Rank(1)),
        },
    )),
    prefill: Some((
        "dynamo-1a2b3c4d",
        Pinned {
            instance: InstanceId::new(7),
            rank: None,
        },
    )),
};

#[test]
fn a_client_that_did_not_ask_is_told_the_routing_path_alone() {
    let mut head_of = headers(&[
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("content-length", "12"),
        ("connection", "keep-alive, x-private"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("x-dynamo-worker-instance-id", "1"),
        ("x-dynamo-anything", "1"),
        ("x-continuum-backend", "forged"),
        ("x-request-id", "echo"),
    ]);
    head(
        &mut head_of,
        &PAIR,
        Disclosure::Hidden,
        &HeaderValue::from_static("r1"),
        false,
    );
    assert_eq!(
        shown(&head_of),
        [
            ("cache-control", "no-cache"),
            ("content-length", "12"),
            ("content-type", "text/event-stream"),
            ("x-continuum-routing-path", "disaggregated"),
            ("x-request-id", "r1"),
        ]
    );
}

#[test]
fn a_client_that_asked_is_told_backend_and_workers() {
    let mut pair = HeaderMap::new();
    head(
        &mut pair,
        &PAIR,
        Disclosure::Asked,
        &HeaderValue::from_static("r1"),
        false,
    );
    assert_eq!(
        shown(&pair),
        [
            ("x-continuum-backend", "frontend-1"),
            ("x-continuum-decode-worker", "dynamo/18446744073709551615@1"),
            ("x-continuum-prefill-worker", "dynamo-1a2b3c4d/7"),
            ("x-continuum-routing-path", "disaggregated"),
            ("x-request-id", "r1"),
        ]
    );
    let unpinned = Made {
        path: RoutingPath::Unified,
        backend: "vllm",
        decode: None,
        prefill: None,
    };
    let mut plain = HeaderMap::new();
    head(
        &mut plain,
        &unpinned,
        Disclosure::Asked,
        &HeaderValue::from_static("r1"),
        false,
    );
    assert_eq!(
        shown(&plain),
        [
            ("x-continuum-backend", "vllm"),
            ("x-continuum-routing-path", "unified"),
            ("x-request-id", "r1")
        ]
    );
}

#[test]
fn an_edited_answer_has_no_known_length() {
    let mut edited = headers(&[("content-length", "12")]);
    head(
        &mut edited,
        &PAIR,
        Disclosure::Hidden,
        &HeaderValue::from_static("r1"),
        true,
    );
    assert!(!edited.contains_key("content-length"));
}

#[test]
fn media_types_are_told_apart() {
    for (value, events, json) in [
        ("text/event-stream", true, false),
        ("Text/Event-Stream; charset=utf-8", true, false),
        ("application/json", false, true),
        ("application/json ;x=y", false, true),
        ("text/plain", false, false),
    ] {
        let head = headers(&[("content-type", value)]);
        assert_eq!(
            (is_event_stream(&head), is_json(&head)),
            (events, json),
            "{value}"
        );
    }
    assert!(!is_event_stream(&HeaderMap::new()));
}

fn renamed(framing: Framing, body: &str, cuts: &[usize]) -> String {
    let mut rename = Rename::new(framing, "org/real", "nick\"name");
    let mut out = Vec::new();
    let mut from = 0;
    for cut in cuts.iter().copied().chain([body.len()]) {
        out.extend_from_slice(&rename.push(Bytes::copy_from_slice(&body.as_bytes()[from..cut])));
        from = cut;
    }
    out.extend_from_slice(&rename.finish());
    String::from_utf8(out).expect("UTF-8")
}

const JSON: [(&str, &str); 12] = [
    (r#"{"model":"org/real"}"#, r#"{"model":"nick\"name"}"#),
    (
        r#"{"id":"x", "model" : "org\/re\u0061l" , "n":1}"#,
        r#"{"id":"x", "model" : "nick\"name" , "n":1}"#,
    ),
    (
        r#"{"model":"org/real2","x":"org/real"}"#,
        r#"{"model":"org/real2","x":"org/real"}"#,
    ),
    (
        r#"{"x":"model","y":"org/real"}"#,
        r#"{"x":"model","y":"org/real"}"#,
    ),
    (
        r#"{"choices":[{"model":"org/real"}]}"#,
        r#"{"choices":[{"model":"org/real"}]}"#,
    ),
    (
        r#"{"usage":{"model":"org/real"}}"#,
        r#"{"usage":{"model":"org/real"}}"#,
    ),
    (
        r#"{"response":{"id":1,"model":"org/real"}}"#,
        r#"{"response":{"id":1,"model":"nick\"name"}}"#,
    ),
    (
        r#"{"message":{"x":{"model":"org/real"},"model":"org/real"}}"#,
        r#"{"message":{"x":{"model":"org/real"},"model":"nick\"name"}}"#,
    ),
    (
        r#"{"content":"{\"model\":\"org/real\"}"}"#,
        r#"{"content":"{\"model\":\"org/real\"}"}"#,
    ),
    (
        r#"{"model":["org/real"],"a":"org/real"}"#,
        r#"{"model":["org/real"],"a":"org/real"}"#,
    ),
    (r#"["model","org/real"]"#, r#"["model","org/real"]"#),
    (
        r#"{"a":{"b":{"c":[1,{"d":"}"}]}},"model":"org/real"}"#,
        r#"{"a":{"b":{"c":[1,{"d":"}"}]}},"model":"nick\"name"}"#,
    ),
];

#[test]
fn the_model_of_a_document_is_renamed_and_nothing_else() {
    for (body, wanted) in JSON {
        assert_eq!(renamed(Framing::Json, body, &[]), wanted);
    }
    assert_eq!(
        renamed(Framing::Json, "{\n  \"model\":\n \"org/real\"\n}", &[]),
        "{\n  \"model\":\n \"nick\\\"name\"\n}"
    );
}

#[test]
fn each_event_is_a_document_of_its_own() {
    let body = "data: {\"model\":\"org/real\",\"x\":\"cut off\n\ndata:{\"model\":\"org/real\"}\r\n\r\n\
                event: {\"model\":\"org/real\"}\n: {\"model\":\"org/real\"}\ndata: {\"model\":\"org/re\n\
                data: {\"model\":\"org/real\"}\n\ndata: [DONE]\n\n";
    let wanted = "data: {\"model\":\"nick\\\"name\",\"x\":\"cut off\n\ndata:{\"model\":\"nick\\\"name\"}\r\n\r\n\
                  event: {\"model\":\"org/real\"}\n: {\"model\":\"org/real\"}\ndata: {\"model\":\"org/re\n\
                  data: {\"model\":\"nick\\\"name\"}\n\ndata: [DONE]\n\n";
    assert_eq!(renamed(Framing::Events, body, &[]), wanted);
    for cut in 0..body.len() {
        assert_eq!(renamed(Framing::Events, body, &[cut]), wanted, "cut at {cut}");
    }
    let all: Vec<_> = (1..body.len()).collect();
    assert_eq!(renamed(Framing::Events, body, &all), wanted);
}

#[test]
fn chunks_without_the_name_pass_as_the_same_bytes() {
    let mut rename = Rename::new(Framing::Events, "org/real", "nick");
    let chunk = Bytes::from_static(
        b"data: {\"id\":1,\"model\":\"other\",\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
    );
    assert_eq!(rename.push(chunk.clone()).as_ptr(), chunk.as_ptr());
    assert_eq!(rename.finish(), Bytes::new());
}

#[test]
fn what_is_held_back_is_bounded_and_comes_out_at_the_end() {
    let mut rename = Rename::new(Framing::Json, "org/real", "nick");
    assert_eq!(
        rename.push(Bytes::from_static(b"{\"model\":\"org/")),
        "{\"model\":"
    );
    assert_eq!(rename.finish(), "\"org/");

    let mut rename = Rename::new(Framing::Json, "org/real", "nick");
    let mut sent = b"{\"model\":\"".to_vec();
    let mut came = rename.push(Bytes::from(sent.clone())).to_vec();
    for _ in 0..100 {
        let piece = vec![b'a'; 1000];
        came.extend_from_slice(&rename.push(Bytes::from(piece.clone())));
        sent.extend_from_slice(&piece);
        assert!(sent.len() - came.len() <= crate::ingress::limits::MAX_HELD_NAME_BYTES);
    }
    came.extend_from_slice(&rename.push(Bytes::from_static(b"\",\"x\":1}")));
    sent.extend_from_slice(b"\",\"x\":1}");
    assert_eq!(came, sent);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Where the chunks end changes nothing.
    #[test]
    fn any_split_gives_the_same_answer(
        which in proptest::collection::vec(0..JSON.len(), 1..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (mut body, mut wanted) = (String::new(), String::new());
        for i in which {
            body += &format!("data: {}\n\n", JSON[i].0);
            wanted += &format!("data: {}\n\n", JSON[i].1);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(renamed(Framing::Events, &body, &cuts), wanted);
    }

    /// Whatever a backend sends: no panic, and without the name not one byte is different.
    #[test]
    fn other_bytes_pass_as_they_are(
        chunks in proptest::collection::vec("[\\{\\}\\[\\],:\"\\\\ \nmodelata]{0,20}", 0..20), events in any::<bool>(),
    ) {
        let framing = if events { Framing::Events } else { Framing::Json };
        let mut rename = Rename::new(framing, "org/real", "nick");
        let mut came = Vec::new();
        for chunk in &chunks {
            came.extend_from_slice(&rename.push(Bytes::from(chunk.clone())));
        }
        came.extend_from_slice(&rename.finish());
        prop_assert_eq!(came, chunks.concat().into_bytes());
    }
}
