mod tree;

use bytes::Bytes;
use proptest::prelude::*;

use self::tree::{Tree, body_text};
use super::*;

fn look(body: &str) -> Result<Inspected, Error> {
    inspect(body.as_bytes(), Disclosure::Hidden)
}

/// What leaves for the backend when the client did, or did not, send `x-backend`.
fn sent(body: &str, disclosure: Disclosure) -> String {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let inspected = inspect(&bytes, disclosure).expect("an acceptable body");
    String::from_utf8(inspected.outbound(&bytes, None).to_vec()).expect("UTF-8")
}

fn refused(body: &str) -> (Reason, usize) {
    let error = look(body).expect_err(body);
    (error.reason, error.at)
}

#[test]
fn model_and_stream_are_found() {
    let table = [
        (r#"{"model":"m"}"#, "m", false),
        (
            r#" { "messages" : [ ] , "model" : "org/m" , "stream" : true } "#,
            "org/m",
            true,
        ),
        (r#"{"stream":null,"model":"m"}"#, "m", false),
        (r#"{"stream":false,"model":"m"}"#, "m", false),
        (r#"{"model":"m","mod\u0065l":"m","str\u0065am":true}"#, "m", true),
        (r#"{"model":"모\ub378 \"1\""}"#, "모델 \"1\"", false),
        (r#"{"x":{"model":"inner","stream":true},"model":"m"}"#, "m", false),
        (r#"{"model":"m","stream":true,"stream":true}"#, "m", true),
    ];
    for (body, model, stream) in table {
        let found = look(body).expect(body);
        assert_eq!((found.model.as_str(), found.stream), (model, stream), "{body}");
    }
}

#[test]
fn a_body_without_a_usable_model_is_refused() {
    let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(MAX_MODEL_NAME_BYTES + 1));
    let table = [
        ("", Reason::Truncated, 0),
        ("   ", Reason::Truncated, 3),
        ("[]", Reason::NotAnObject, 0),
        (r#""model""#, Reason::NotAnObject, 0),
        ("nope", Reason::ExpectedValue, 0),
        ("{}", Reason::ModelMissing, 0),
        (r#"{"Model":"m"}"#, Reason::ModelMissing, 0),
        (r#"{"model":""}"#, Reason::ModelEmpty, 9),
        (r#"{"model": 7}"#, Reason::ModelNotText, 10),
        (r#"{"model":null}"#, Reason::ModelNotText, 9),
        (r#"{"model":["m"]}"#, Reason::ModelNotText, 9),
        (r#"{"model":"\ud800"}"#, Reason::ModelNotText, 9),
        (r#"{"model":"m","model":"n"}"#, Reason::ModelTwice, 21),
        (r#"{"model":"m","mod\u0065l":"n"}"#, Reason::ModelTwice, 26),
        (r#"{"model":"m","stream":1}"#, Reason::StreamNotBool, 22),
        (r#"{"model":"m","stream":"true"}"#, Reason::StreamNotBool, 22),
        (
            r#"{"model":"m","stream":true,"stream":false}"#,
            Reason::StreamTwice,
            36,
        ),
        (r#"{"model":"m"}x"#, Reason::TrailingData, 13),
        (r#"{"model":"m"}{"model":"n"}"#, Reason::TrailingData, 13),
        (r#"{"model":"m",}"#, Reason::ExpectedKey, 13),
        (r#"{"model":"m""#, Reason::Truncated, 12),
        (r#"{"model":"m" "a":1}"#, Reason::ExpectedCommaOrEnd, 13),
        (long.as_str(), Reason::ModelTooLong, 9),
        (r#"{"model":"m","nvext":[]}"#, Reason::NvextNotObject, 21),
        (
            r#"{"model":"m","nvext":[null,null,null,7]}"#,
            Reason::NvextNotObject,
            21,
        ),
        (r#"{"model":"m","nvext":"x"}"#, Reason::NvextNotObject, 21),
        (
            r#"{"model":"m","nvext":{"agent_hints":[1,2]}}"#,
            Reason::NvextNotObject,
            36,
        ),
    ];
    for (body, reason, at) in table {
        assert_eq!(refused(body), (reason, at), "{body}");
    }
    for body in [
        &b"{\"model\":\"\xff\"}"[..],
        b"{\"model\":\"m\",\"a\":\"\xed\xa0\x80\"}",
        b"\xff\xfe{\0}\0",
    ] {
        let error = inspect(body, Disclosure::Hidden).expect_err("not UTF-8");
        assert_eq!(error.reason, Reason::NotUtf8);
    }
    assert_eq!(
        look(r#"{"model":"m","a":tru}"#)
            .expect_err("a half word")
            .to_string(),
        "the request body is not valid JSON: expected a value at byte 17"
    );
}

/// A body of the largest size has room for millions of members, and each place that is edited costs more memory than it
/// has bytes.
#[test]
fn places_to_edit_are_few() {
    let models = |times: usize| format!(r#"{{{}"a":1}}"#, r#""model":"m","#.repeat(times));
    let body = models(MAX_MODEL_MEMBERS);
    assert_eq!(look(&body).expect("acceptable").models.len(), MAX_MODEL_MEMBERS);
    let at = models(MAX_MODEL_MEMBERS).find(r#""a""#).expect("it is there") + r#""model":"#.len();
    assert_eq!(
        refused(&models(MAX_MODEL_MEMBERS + 1)),
        (Reason::ModelTooOften, at)
    );
    let error = look(&models(1000)).expect_err("too many");
    assert_eq!(
        (error.to_string().as_str(), error.param()),
        ("`model` is given more than 8 times", Some("model"))
    );

    // Neighbours are one place.
    let bytes = Bytes::from(format!(
        r#"{{"model":"m","nvext":{{"a":1{},"b":2}}}}"#,
        r#","dp_rank":7"#.repeat(10_000)
    ));
    let found = inspect(&bytes, Disclosure::Hidden).expect("acceptable");
    assert_eq!(found.removals.len(), 1);
    assert_eq!(
        found.outbound(&bytes, None),
        r#"{"model":"m","nvext":{"a":1,"b":2}}"#
    );
    for (open, member, close) in [
        (r#""nvext":{"#, r#""dp_rank":7,"a":1,"#, r#""b":2}"#),
        ("", r#""nvext":{"dp_rank":7},"#, r#""b":2"#),
        (
            r#""nvext":{"agent_hints":{"#,
            r#""osl":7,"priority":1,"#,
            r#""b":2}}"#,
        ),
        (
            r#""nvext":{"annotations":["#,
            r#""a","query_instance_id","#,
            r#""b"]}"#,
        ),
        (r#""nvext":{"extra_fields":["#, r#""a","worker_id","#, r#""b"]}"#),
    ] {
        let body = |times: usize| format!(r#"{{"model":"m",{open}{}{close}}}"#, member.repeat(times));
        let found = look(&body(MAX_REMOVALS)).expect(member);
        assert_eq!(found.removals.len(), MAX_REMOVALS, "{member}");
        assert_eq!(
            refused(&body(MAX_REMOVALS + 1)).0,
            Reason::TooManyRemovals,
            "{member}"
        );
    }
}

#[test]
fn nesting_is_bounded_from_the_top_of_the_body() {
    let body = |levels: usize| {
        format!(
            r#"{{"model":"m","a":{}{}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(look(&body(126)).is_ok());
    assert_eq!(refused(&body(127)).0, Reason::TooDeep);
    let hints = |levels: usize| {
        format!(
            r#"{{"model":"m","nvext":{{"agent_hints":{{"x":{}{}}}}}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(look(&hints(124)).is_ok());
    assert_eq!(refused(&hints(125)).0, Reason::TooDeep);
}

#[test]
fn the_prompt_is_measured_in_characters() {
    let size = |body: &str| look(body).expect(body).prompt;
    let of = |ascii, other, token_ids| PromptSize {
        ascii,
        other,
        token_ids,
    };
    let table = [
        (r#"{"model":"m"}"#, of(0, 0, 0)),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#,
            of(9, 0, 0),
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"안녕 hi"}]}]}"#,
            of(11, 2, 0),
        ),
        (
            r#"{"model":"m","prompt":"a\nb\u0041\uc548\ud83d\ude00"}"#,
            of(4, 2, 0),
        ),
        (r#"{"model":"m","prompt":[1,2,3]}"#, of(0, 0, 3)),
        (r#"{"model":"m","prompt":[[1,2],[3,4]]}"#, of(0, 0, 4)),
        (r#"{"model":"m","prompt":["ab","cd"]}"#, of(4, 0, 0)),
        (r#"{"model":"m","input":"abc","seed":12}"#, of(3, 0, 0)),
        (
            r#"{"model":"m","tools":[{"name":"f"}],"user":"me","metadata":{"a":"b"}}"#,
            of(14, 0, 0),
        ),
        (
            r#"{"model":"m","messages":[{"image_url":{"url":"data:image/png;base64,AAAA"}}]}"#,
            of(0, 0, 0),
        ),
    ];
    for (body, wanted) in table {
        assert_eq!(size(body), wanted, "{body}");
    }
}

#[test]
fn an_estimate_is_at_least_one_token() {
    let tokens = |ascii, other, token_ids| {
        PromptSize {
            ascii,
            other,
            token_ids,
        }
        .estimated_tokens()
    };
    assert_eq!(tokens(0, 0, 0), 1);
    assert_eq!(tokens(3, 0, 0), 1);
    assert_eq!(tokens(8, 0, 0), 2);
    assert_eq!(tokens(8, 5, 2), 9);
    assert_eq!(tokens(u64::MAX, u64::MAX, 1), u64::MAX);
}

#[test]
fn routing_fields_leave_nvext() {
    let table = [
        (
            r#"{"model":"m","nvext":{"token_data":[1,2]}}"#,
            r#"{"model":"m","nvext":{}}"#,
        ),
        (
            r#"{"model":"m","nvext":{ "dp_rank" : 1 }}"#,
            r#"{"model":"m","nvext":{  }}"#,
        ),
        (
            r#"{"model":"m","nvext":{"dp_rank":1,"max_thinking_tokens":5}}"#,
            r#"{"model":"m","nvext":{"max_thinking_tokens":5}}"#,
        ),
        (
            r#"{"model":"m","nvext":{"max_thinking_tokens":5 , "dp_rank":1 }}"#,
            r#"{"model":"m","nvext":{"max_thinking_tokens":5 }}"#,
        ),
        (
            r#"{"model":"m","nvext":{"dp_rank":1, "a":1, "router":{}, "prefill_dp_rank":2 , "b":2}}"#,
            r#"{"model":"m","nvext":{"a":1 , "b":2}}"#,
        ),
        (
            r#"{"nvext":{"dp_rank":1,"router":2,"a":3},"model":"m"}"#,
            r#"{"nvext":{"a":3},"model":"m"}"#,
        ),
        (
            r#"{"nvext":{"dp_rank":1,"router":2},"model":"m"}"#,
            r#"{"nvext":{},"model":"m"}"#,
        ),
        (
            r#"{"nv\u0065xt":{"\u0064p_rank":1},"model":"m"}"#,
            r#"{"nv\u0065xt":{},"model":"m"}"#,
        ),
        (
            r#"{"nvext":{"dp_rank":1},"model":"m","nvext":{"router":{"x":[{}]}}}"#,
            r#"{"nvext":{},"model":"m","nvext":{}}"#,
        ),
        (
            r#"{"model":"m","nvext":{"agent_hints":{"osl":9,"priority":1,"strict_priority":2}}}"#,
            r#"{"model":"m","nvext":{"agent_hints":{"osl":9}}}"#,
        ),
        (
            r#"{"model":"m","nvext":{"router":1,"agent_hints":{"priority":1,"osl":9},"dp_rank":0}}"#,
            r#"{"model":"m","nvext":{"agent_hints":{"osl":9}}}"#,
        ),
        (
            r#"{"model":"m","nvext":{"annotations":["query_instance_id:","formatted_prompt","query_instance_id"]}}"#,
            r#"{"model":"m","nvext":{"annotations":["formatted_prompt"]}}"#,
        ),
        (
            r#"{"model":"m","nvext":{"annotations":["qu\u0065ry_instance_id:x"]}}"#,
            r#"{"model":"m","nvext":{"annotations":[]}}"#,
        ),
    ];
    for (body, wanted) in table {
        assert_eq!(sent(body, Disclosure::Hidden), wanted, "{body}");
        assert_eq!(sent(body, Disclosure::Asked), wanted, "{body}");
    }
    for field in ROUTING_FIELDS {
        let field = String::from_utf8_lossy(field);
        for value in ["1", "null", "[1,{\"a\":\"}\"}]", "\"x\\\"\"", "{\"url\":\"u\"}"] {
            let body = format!(r#"{{"model":"m","nvext":{{"cache_salt":"s","{field}":{value}}}}}"#);
            assert_eq!(
                sent(&body, Disclosure::Hidden),
                r#"{"model":"m","nvext":{"cache_salt":"s"}}"#,
                "{body}"
            );
        }
    }
}

#[test]
fn worker_ids_are_told_only_to_who_asked_for_them() {
    let body =
        r#"{"model":"m","nvext":{"extra_fields":["timing","worker_id","routed_experts",7,"engine_data"]}}"#;
    assert_eq!(
        sent(body, Disclosure::Hidden),
        r#"{"model":"m","nvext":{"extra_fields":["timing",7]}}"#
    );
    assert_eq!(sent(body, Disclosure::Asked), body);
}

#[test]
fn what_needs_no_edit_leaves_as_the_same_bytes() {
    let bodies = [
        r#"{"model":"m"}"#,
        "{ \"b\":1.0e+2,\r\n\t\"a\":-0,\"model\" : \"m\\u006d\" ,\"nvext\":null, \"big\":123456789012345678901234567890}",
        r#"{"model":"m","nvext":{"cache_salt":"x","agent_hints":{"osl":1},"annotations":["a"],"extra_fields":["timing"]}}"#,
        r#"{"model":"m","cache_salt":"x","dp_rank":1,"token_data":[1],"x":{"nvext":{"dp_rank":1}}}"#,
        r#"{"model":"m","messages":[{"content":"\"nvext\":{\"dp_rank\":1}"}]}"#,
    ];
    for body in bodies {
        let bytes = Bytes::from(body);
        let inspected = inspect(&bytes, Disclosure::Hidden).expect(body);
        assert!(!inspected.has_removals(), "{body}");
        let out = inspected.outbound(&bytes, None);
        assert_eq!((out.as_ptr(), out.len()), (bytes.as_ptr(), bytes.len()), "{body}");
    }
}

#[test]
fn a_mapped_model_takes_the_place_of_the_name_wherever_it_stands() {
    let body = Bytes::from(r#"{"a":[ 1.50 ],"model" : "m","nvext":{"dp_rank":1},"mod\u0065l":"\u006d" }"#);
    let inspected = inspect(&body, Disclosure::Hidden).expect("acceptable");
    assert_eq!(
        inspected.outbound(&body, Some("org/\"n\"")),
        r#"{"a":[ 1.50 ],"model" : "org/\"n\"","nvext":{},"mod\u0065l":"org/\"n\"" }"#
    );
}

#[test]
fn the_naive_model_is_asked_often_enough() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let mut runner = TestRunner::deterministic();
    let bodies = body_text();
    let found: Vec<_> = (0..100)
        .map(|_| bodies.new_tree(&mut runner).expect("a body").current())
        .filter_map(|body| look(&body).ok())
        .collect();
    assert!(found.len() > 40, "{} of 100 bodies are acceptable", found.len());
    let edited = found.iter().filter(|one| one.has_removals()).count();
    assert!(edited > 20, "{edited} of 100 bodies have to be edited");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The same result as a naive model that keeps every pair of every object and edits the tree.
    #[test]
    fn edits_agree_with_a_naive_model(
        body in body_text(),
        asked in any::<bool>(),
        mapped in proptest::option::of("[a-z\"\\\\모]{1,4}"),
    ) {
        let disclosure = if asked { Disclosure::Asked } else { Disclosure::Hidden };
        let bytes = Bytes::from(body.clone());
        let Ok(inspected) = inspect(&bytes, disclosure) else {
            return Ok(());
        };
        // Any reader that takes the last of several equal keys sees what this one saw.
        let value: serde_json::Value = serde_json::from_str(&body).expect("accepted here, so JSON there");
        prop_assert_eq!(value["model"].as_str(), Some(inspected.model.as_str()));
        prop_assert_eq!(value["stream"].as_bool().unwrap_or(false), inspected.stream);

        let out = inspected.outbound(&bytes, mapped.as_deref());
        let tree: Tree = serde_json::from_slice(&out).expect("what leaves is JSON");
        let original: Tree = serde_json::from_str(&body).expect("JSON");
        prop_assert_eq!(tree, original.cleaned(asked, mapped.as_deref()));

        // No byte outside the edits changes.
        let mut spliced = String::new();
        let mut kept = 0;
        let mut edits: Vec<_> = inspected.removals.iter().map(|r| (r.clone(), String::new())).collect();
        if let Some(name) = &mapped {
            let quoted = serde_json::to_string(name).expect("text");
            edits.extend(inspected.models.iter().map(|r| (r.clone(), quoted.clone())));
        }
        edits.sort_by_key(|(range, _)| range.start);
        for (range, instead) in edits {
            prop_assert!(range.start >= kept, "edits overlap");
            spliced.push_str(&body[kept..range.start]);
            spliced.push_str(&instead);
            kept = range.end;
        }
        spliced.push_str(&body[kept..]);
        prop_assert_eq!(out, spliced.as_bytes());
    }

    /// Counting agrees with counting the characters of the decoded strings.
    #[test]
    fn prompt_size_agrees_with_the_decoded_text(text in "[ -~모\u{e9}\u{1F600}\n\"\\\\]{0,300}", ascii_json in any::<bool>()) {
        let mut quoted = serde_json::to_string(&text).expect("text");
        if ascii_json {
            quoted = quoted.encode_utf16().map(|unit| match u8::try_from(unit) {
                Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                _ => format!("\\u{unit:04x}"),
            }).collect();
        }
        let found = look(&format!(r#"{{"model":"m","prompt":{quoted}}}"#)).expect("acceptable").prompt;
        if !text.starts_with("data:") {
            let ascii = text.chars().filter(char::is_ascii).count() as u64;
            prop_assert_eq!((found.ascii, found.other), (ascii, text.chars().count() as u64 - ascii));
        }
    }

    /// Never a panic, and never a body accepted that is not JSON.
    #[test]
    fn damaged_bodies_are_accepted_only_as_json(
        body in body_text(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = body.into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(inspected) = inspect(&bytes, Disclosure::Hidden) {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok());
            let bytes = Bytes::from(bytes);
            let out = inspected.outbound(&bytes, Some("n"));
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&out).is_ok());
        }
    }
}
