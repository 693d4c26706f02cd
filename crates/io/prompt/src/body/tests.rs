use proptest::prelude::*;
use serde_json::json;

use super::*;

fn chat(body: &serde_json::Value) -> Result<Given, Refused> {
    match read(Endpoint::Chat, body.to_string().as_bytes())?.prompt {
        Prompt::Chat { given, .. } => Ok(given),
        Prompt::Text(_) | Prompt::Tokens(_) => Err(Refused),
    }
}

fn text(json: &Json) -> String {
    serde_json::to_string(json).unwrap()
}

#[test]
fn messages_have_the_members_that_the_frontend_knows_in_its_order() {
    for (message, expected) in [
        (
            json!({"content": "a", "role": "user", "name": "n", "extra": 1}),
            r#"{"role":"user","content":"a","name":"n"}"#,
        ),
        (
            json!({"role": "assistant", "content": null, "refusal": null}),
            r#"{"role":"assistant"}"#,
        ),
        (
            json!({"role": "assistant", "content": "a", "reasoning": "r"}),
            r#"{"role":"assistant","content":"a","reasoning_content":"r"}"#,
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "i", "index": 0, "function": {"arguments": {"b": 1, "a": [true, null]}, "name": "f"}}]}),
            r#"{"role":"assistant","tool_calls":[{"id":"i","type":"function","function":{"name":"f","arguments":"{\"a\":[true,null],\"b\":1}"}}]}"#,
        ),
        (
            json!({"role": "tool", "tool_call_id": "i", "content": [{"type": "text", "text": "a", "x": 1}]}),
            r#"{"role":"tool","content":[{"type":"text","text":"a"}],"tool_call_id":"i"}"#,
        ),
        (
            json!({"role": "function", "name": "f"}),
            r#"{"role":"function","content":null,"name":"f"}"#,
        ),
    ] {
        let given = chat(&json!({"messages": [message]})).unwrap();
        assert_eq!(text(&Json::Object(given.messages[0].clone())), expected);
    }
}

#[test]
fn the_order_of_a_tool_s_schema_is_the_client_s() {
    let body = br#"{"messages":[],"tools":[{"function":{"parameters":{"z":1,"a":{"y":2,"b":3},"z":4},"strict":true,"name":"f"},"type":"function"}]}"#;
    let Prompt::Chat { given, .. } = read(Endpoint::Chat, body).unwrap().prompt else {
        panic!()
    };
    assert_eq!(
        text(&given.tools.unwrap()[0]),
        r#"{"type":"function","function":{"name":"f","parameters":{"z":4,"a":{"y":2,"b":3},"type":"object","properties":{}},"strict":true,"description":""}}"#
    );
}

#[test]
fn decisions_on_thinking_are_told_in_every_spelling() {
    for (body, expected) in [
        (json!({}), "{}"),
        (json!({"chat_template_args": {"x": 1}}), r#"{"x":1}"#),
        (
            json!({"chat_template_kwargs": {"enable_thinking": false}}),
            r#"{"enable_thinking":false,"thinking":false,"thinking_mode":"disabled"}"#,
        ),
        (
            json!({"thinking": {"type": "enabled"}, "chat_template_args": {"enable_thinking": false}}),
            r#"{"enable_thinking":true,"thinking":true,"thinking_mode":"enabled"}"#,
        ),
        (
            json!({"thinking": {"type": "adaptive"}, "chat_template_args": {"enable_thinking": false}}),
            r#"{"thinking_mode":"adaptive"}"#,
        ),
        (
            json!({"reasoning_effort": "none"}),
            r#"{"thinking":false,"enable_thinking":false,"thinking_mode":"disabled","reasoning_effort":"none"}"#,
        ),
    ] {
        let mut body = body;
        body["messages"] = json!([]);
        assert_eq!(
            text(&Json::Object(chat(&body).unwrap().arguments)),
            expected,
            "{body}"
        );
    }
}

#[test]
fn what_the_frontend_refuses_or_only_workers_know_is_refused() {
    let user = json!({"role": "user", "content": "a"});
    for body in [
        json!({}),
        json!([]),
        json!({"messages": "a"}),
        json!({"messages": [{"role": "user"}]}),
        json!({"messages": [{"role": "user", "content": null}]}),
        json!({"messages": [{"role": "user", "content": 1}]}),
        json!({"messages": [{"role": "other", "content": "a"}]}),
        json!({"messages": [{"content": "a"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "input_audio", "text": "x"}]}]}),
        json!({"messages": [{"role": "user", "content": "a", "tools": []}]}),
        json!({"messages": [{"role": "assistant", "content": "a", "partial": true}]}),
        json!({"messages": [{"role": "assistant", "content": "a", "audio": {"id": "x"}}]}),
        json!({"messages": [{"role": "assistant", "reasoning": "a", "reasoning_content": "b"}]}),
        json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "i", "function": {"name": "f", "arguments": {"x": 0.5}}}]}]}),
        json!({"messages": [{"role": "tool", "content": "a"}]}),
        json!({"messages": [user], "tools": [{"type": "other", "function": {"name": "f"}}]}),
        json!({"messages": [user], "tools": {}}),
        json!({"messages": [user], "chat_template_args": {}, "chat_template_kwargs": {}}),
        json!({"messages": [user], "thinking": "on"}),
        json!({"messages": [user], "continue_final_message": true}),
        json!({"messages": [user], "add_generation_prompt": 1}),
        json!({"messages": [user], "nvext": {"use_raw_prompt": true}}),
    ] {
        assert!(chat(&body).is_err(), "{body}");
    }
}

#[test]
fn completions_take_one_text_or_one_list_of_ids() {
    let prompt = |prompt: serde_json::Value| {
        read(
            Endpoint::Completions,
            json!({"prompt": prompt}).to_string().as_bytes(),
        )
        .map(|request| request.prompt)
    };
    assert_eq!(prompt(json!("a")), Ok(Prompt::Text("a".to_owned())));
    assert_eq!(prompt(json!(["a"])), Ok(Prompt::Text("a".to_owned())));
    assert_eq!(prompt(json!([1, 2])), Ok(Prompt::Tokens(vec![1, 2])));
    assert_eq!(prompt(json!([[1, 2]])), Ok(Prompt::Tokens(vec![1, 2])));
    for refused in [
        json!(null),
        json!([]),
        json!(["a", "b"]),
        json!([[1], [2]]),
        json!([1, -1]),
        json!([1, 4_294_967_296_u64]),
        json!({}),
    ] {
        assert_eq!(prompt(refused.clone()), Err(Refused), "{refused}");
    }
}

/// JSON that looks like requests here and there.
fn bodies() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        prop::sample::select(vec![
            "user",
            "assistant",
            "system",
            "tool",
            "text",
            "function",
            "none",
            "auto",
            "<think>x</think>",
            "\0",
            "{\"a\":1}"
        ])
        .prop_map(|s| json!(s)),
        ".{0,8}".prop_map(|s| json!(s)),
    ];
    let names = prop::sample::select(vec![
        "messages",
        "role",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "id",
        "tools",
        "type",
        "text",
        "parameters",
        "properties",
        "reasoning_content",
        "chat_template_kwargs",
        "thinking",
        "tool_choice",
        "nvext",
        "cache_salt",
        "prompt",
        "description",
        "tool_call_id",
        "continue_final_message",
        "add_generation_prompt",
        "items",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| json!(items)),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|members| json!(members)),
        ]
    })
}

#[test]
fn no_body_does_harm() {
    let model = &*crate::model::tests::MODEL;
    let metrics = crate::metrics::Metrics::new().unwrap();
    let caps = crate::model::tests::caps();
    proptest!(ProptestConfig::with_cases(512), |(messages in prop::collection::vec(bodies(), 0..4), rest in bodies(), bytes in prop::collection::vec(any::<u8>(), 0..64))| {
        let mut body = json!({"messages": messages});
        if let Some(rest) = rest.as_object() {
            for (name, value) in rest {
                body[name] = value.clone();
            }
        }
        for endpoint in [Endpoint::Chat, Endpoint::Completions] {
            let _any = model.encode(endpoint, body.to_string().as_bytes(), caps, jiff::Timestamp::UNIX_EPOCH, &metrics);
            let _any = model.encode(endpoint, rest.to_string().as_bytes(), caps, jiff::Timestamp::UNIX_EPOCH, &metrics);
            let _any = read(endpoint, &bytes);
        }
    });
}
