use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(k, v)| {
            (
                HeaderName::from_bytes(k.as_bytes()).unwrap(),
                HeaderValue::from_str(v).unwrap(),
            )
        })
        .collect()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut all: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    all.sort_unstable();
    all
}

/// Everything that a frontend or a gateway in front of it takes as routing.
const PINS: [&str; 24] = [
    "x-dynamo-worker-instance-id",
    "x-dynamo-prefill-instance-id",
    "x-dynamo-decode-instance-id",
    "x-dynamo-dp-rank",
    "x-dynamo-prefill-dp-rank",
    "x-dynamo-routing-mode",
    "x-dynamo-request-priority",
    "x-dynamo-request-strict-priority",
    "x-dynamo-session-id",
    "x-dynamo-meta-anything",
    "X-Dynamo-",
    "X-DYNAMO-DP-RANK",
    "x-worker-instance-id",
    "x-prefill-instance-id",
    "X-Dp-Rank",
    "x-data-parallel-rank",
    "x-prefill-dp-rank",
    "x-prefiller-host-port",
    "x-enable-local-updates",
    "x-bypass-remote-prefill",
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-objective",
    "x-gateway-model-name-rewrite",
];

const NO_PINS: [&str; 12] = [
    "x-session-id",
    "x-parent-session-id",
    "x-claude-code-session",
    "thread-id",
    "x-codex-turn",
    "x-request-id",
    "x-tenant-id",
    "x-dynamo",
    "dynamo-dp-rank",
    "x-gateway",
    "x-dp-rank-2",
    "x",
];

#[test]
fn every_pin_goes_and_nothing_else() {
    for name in PINS {
        let mut one = headers(&[(name, "1"), (name, "2"), ("accept", "*/*")]);
        client_pins(&mut one);
        assert_eq!(names(&one), ["accept"], "{name}");
    }
    for name in NO_PINS {
        let mut one = headers(&[(name, "1")]);
        client_pins(&mut one);
        assert_eq!(names(&one), [name]);
    }
    // All at once: more than are removed in one go.
    let mut all: HeaderMap = headers(&PINS.map(|name| (name, "1")));
    all.extend(headers(&NO_PINS.map(|name| (name, "1"))));
    client_pins(&mut all);
    let mut kept = NO_PINS;
    kept.sort_unstable();
    assert_eq!(names(&all), kept);
}

#[test]
fn any_x_backend_asks_to_be_told() {
    for value in ["", "yes", "frontend-1"] {
        let mut asked = headers(&[("x-backend", value), ("x-backend", value)]);
        assert_eq!(disclosure(&mut asked), Disclosure::Asked);
        assert!(asked.is_empty());
    }
    assert_eq!(disclosure(&mut HeaderMap::new()), Disclosure::Hidden);
}

#[test]
fn only_plain_json_can_be_looked_at() {
    let of = |pairs: &[(&str, &str)]| json_body(&headers(pairs));
    for fine in [
        &[][..],
        &[("content-type", "application/json")],
        &[("content-type", "Application/JSON; charset=utf-8")],
        &[("content-type", "application/vnd.api+json")],
        &[("content-encoding", "identity")],
        &[("content-encoding", " Identity ")],
    ] {
        assert_eq!(of(fine), Ok(()), "{fine:?}");
    }
    for media in [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; x=application/json",
        "application/jsonx",
        "text/x+json",
    ] {
        assert_eq!(
            of(&[("content-type", media)]),
            Err(Error::UnsupportedMediaType),
            "{media}"
        );
    }
    assert_eq!(
        of(&[
            ("content-type", "application/json"),
            ("content-type", "text/plain")
        ]),
        Err(Error::UnsupportedMediaType)
    );
    for encoding in ["gzip", "identity, gzip", "br", ""] {
        assert_eq!(
            of(&[("content-encoding", encoding)]),
            Err(Error::UnsupportedEncoding),
            "{encoding}"
        );
    }
}

/// A head as clients send it.
fn usual() -> HeaderMap {
    headers(&[
        ("host", "router"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip, br"),
        ("content-type", "application/json"),
        ("content-length", "100"),
        ("content-encoding", "identity"),
        ("expect", "100-continue"),
        ("user-agent", "OpenAI/Python"),
        ("authorization", "Bearer client"),
        ("cookie", "a=b"),
        ("x-api-key", "client"),
        ("api-key", "client"),
        ("connection", "Keep-Alive, X-Private ,, upgrade, (no name)"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "Basic x"),
        ("proxy-authenticate", "Basic"),
        ("te", "trailers"),
        ("trailer", "x-t"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("x-backend", ""),
        ("x-tenant-id", "t"),
        ("x-worker-instance-id", "7"),
        ("x-request-id", "r"),
        ("openai-organization", "o"),
    ])
}

#[test]
fn a_head_is_made_fit_for_a_backend() {
    let passed = [
        "accept",
        "content-type",
        "openai-organization",
        "user-agent",
        "x-request-id",
        "x-tenant-id",
    ];
    let mut dropped = usual();
    outbound(&mut dropped, Credentials::Drop);
    assert_eq!(names(&dropped), passed);

    let mut passing = usual();
    outbound(&mut passing, Credentials::Pass);
    let mut all = [&passed[..], &["authorization", "cookie", "x-api-key", "api-key"]].concat();
    all.sort_unstable();
    assert_eq!(names(&passing), all);
    assert_eq!(passing["authorization"], "Bearer client");
}

#[test]
fn a_body_that_was_read_as_json_says_so() {
    let mut silent = HeaderMap::new();
    outbound(&mut silent, Credentials::Drop);
    assert_eq!(silent["content-type"], "application/json");
    let mut telling = headers(&[("content-type", "application/json; charset=utf-8")]);
    outbound(&mut telling, Credentials::Drop);
    assert_eq!(telling["content-type"], "application/json; charset=utf-8");
}

#[test]
fn a_request_is_accepted_without_its_pins() {
    let mut head = usual();
    // A client cannot talk the router out of its own id.
    head.insert("connection", HeaderValue::from_static("x-request-id"));
    head.insert("traceparent", HeaderValue::from_static("nonsense"));
    let accepted = accept(&mut head, 42);
    assert_eq!(accepted.disclosure, Disclosure::Asked);
    assert_eq!(accepted.request_id, "00000000-0000-4000-8000-00000000002a");
    assert_eq!(head["x-request-id"], accepted.request_id);
    for gone in [
        "connection",
        "x-backend",
        "x-worker-instance-id",
        "traceparent",
        "te",
        "transfer-encoding",
    ] {
        assert!(!head.contains_key(gone), "{gone}");
    }
    assert!(
        head.contains_key("authorization"),
        "what a backend may see of it is decided per backend"
    );
}

#[test]
fn what_connection_lists_goes_with_it() {
    for value in ["close", "keep-alive", "Keep-Alive"] {
        let mut plain = headers(&[("connection", value), ("accept", "*/*")]);
        hop_by_hop(&mut plain);
        assert_eq!(names(&plain), ["accept"]);
    }
    let mut several = headers(&[
        ("connection", "a"),
        ("connection", "B, c"),
        ("a", "1"),
        ("b", "1"),
        ("c", "1"),
        ("d", "1"),
    ]);
    hop_by_hop(&mut several);
    assert_eq!(names(&several), ["d"]);
}

#[test]
fn a_request_id_is_kept_or_made() {
    let made = "00000000-0000-4000-8000-00000000002a";
    let long = "a".repeat(MAX_REQUEST_ID_BYTES);
    for good in ["1", "0b6d9b6c-7f3e-4d7b-9e2a-1c2d3e4f5a6b", long.as_str()] {
        let mut sent = headers(&[("x-request-id", good)]);
        assert_eq!(request_id(&mut sent, 42), good);
        assert_eq!(sent["x-request-id"], good);
    }
    let too_long = "a".repeat(MAX_REQUEST_ID_BYTES + 1);
    for bad in ["", "a b", "모", too_long.as_str()] {
        let mut sent = headers(&[("x-request-id", bad)]);
        assert_eq!(request_id(&mut sent, 42), made, "{bad}");
        assert_eq!(sent["x-request-id"], made);
    }
    let mut twice = headers(&[("x-request-id", "a"), ("x-request-id", "b")]);
    assert_eq!(request_id(&mut twice, 42), made);
    assert_eq!(twice.get_all("x-request-id").iter().count(), 1);
    assert_eq!(
        request_id(&mut HeaderMap::new(), u128::MAX),
        "ffffffff-ffff-4fff-bfff-ffffffffffff"
    );
}

#[test]
fn a_trace_context_is_passed_on_if_it_is_one() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let good = [
        format!("00-{id}-00f067aa0ba902b7-01"),
        format!("cc-{id}-00f067aa0ba902b7-00-more"),
    ];
    for parent in &good {
        let mut sent = headers(&[("traceparent", parent), ("tracestate", "a=b")]);
        trace_context(&mut sent);
        assert_eq!(names(&sent), ["traceparent", "tracestate"], "{parent}");
    }
    let bad = [
        String::new(),
        format!("00-{id}-00f067aa0ba902b7"),
        format!("00-{id}-00f067aa0ba902b7-01-more"),
        format!("ff-{id}-00f067aa0ba902b7-01"),
        format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()),
        format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        format!("00-{id}-0000000000000000-01"),
        format!("00-{id}0-0f067aa0ba902b7-01"),
        format!("cc-{id}-00f067aa0ba902b7-00more"),
    ];
    for parent in &bad {
        let mut sent = headers(&[("traceparent", parent), ("tracestate", "a=b")]);
        trace_context(&mut sent);
        assert!(sent.is_empty(), "{parent}");
    }
    let mut twice = headers(&[("traceparent", &good[0]), ("traceparent", &good[0])]);
    trace_context(&mut twice);
    assert!(twice.is_empty());
    let mut state_alone = headers(&[("tracestate", "a=b")]);
    trace_context(&mut state_alone);
    assert!(state_alone.is_empty());
}
