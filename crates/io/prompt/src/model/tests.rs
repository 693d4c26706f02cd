//! Against what real frontends rendered and encoded.

use std::{path::PathBuf, process::Command, sync::LazyLock, time::Duration};

use serde_json::Value;

use super::*;
use crate::{hashing, limits};

/// A folder with the files of a small chat model; installed by the project's script where it is missing.
pub(crate) fn model_dir() -> PathBuf {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/install-model.sh");
    let output = Command::new(script).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().into()
}

pub(crate) static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let dir = model_dir();
    let tokenizer = std::fs::read(dir.join("tokenizer.json")).unwrap();
    let config = std::fs::read(dir.join("tokenizer_config.json")).unwrap();
    let files = Files {
        tokenizer: &tokenizer,
        config: Some(&config),
        template: None,
    };
    Model::load(files, Arc::new(Cache::new(limits::TOKEN_CACHE_BYTES))).unwrap()
});

pub(crate) fn caps() -> Caps {
    Caps {
        text_bytes: 1 << 20,
        tokens: 1 << 20,
        until: Instant::now() + Duration::from_secs(60),
    }
}

#[test]
fn prompts_are_what_real_frontends_make_of_them() {
    let versions = [
        include_str!("../../tests/fixtures/1.4.2/render-oracle.jsonl"),
        include_str!("../../tests/fixtures/1.5.1/render-oracle.jsonl"),
        include_str!("../../tests/fixtures/1.6.1/render-oracle.jsonl"),
    ];
    let metrics = Metrics::new().unwrap();
    let mut rendered = 0;
    for line in versions.iter().flat_map(|version| version.lines()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["case"].as_str().unwrap();
        let body = case["request"].to_string();
        // `Value` sorts the members of objects; the client's order is in the line.
        let start = line.find("\"request\": ").unwrap() + "\"request\": ".len();
        let mut stream =
            serde_json::Deserializer::from_str(&line[start..]).into_iter::<&serde_json::value::RawValue>();
        let raw = stream.next().unwrap().unwrap().get();
        assert_eq!(serde_json::from_str::<Value>(raw).unwrap().to_string(), body);
        let Some(expected) = case["formatted_prompt"].as_str() else {
            // Refused by 1.4.2 for fields that later versions know.
            if name != "assistant-continue" {
                let found = MODEL.encode(
                    Endpoint::Chat,
                    raw.as_bytes(),
                    caps(),
                    Timestamp::UNIX_EPOCH,
                    &metrics,
                );
                assert_eq!(found, Err(Unavailable::Render), "{name}");
            }
            continue;
        };
        let Prompt::Chat { given, open } = body::read(Endpoint::Chat, raw.as_bytes()).unwrap().prompt else {
            unreachable!()
        };
        assert_eq!(
            MODEL
                .render(given, open, caps(), Timestamp::UNIX_EPOCH)
                .as_deref(),
            Ok(expected),
            "{name}"
        );
        let ids: Vec<u32> = serde_json::from_value(case["token_ids"].clone()).unwrap();
        let found = MODEL
            .encode(
                Endpoint::Chat,
                raw.as_bytes(),
                caps(),
                Timestamp::UNIX_EPOCH,
                &metrics,
            )
            .unwrap();
        assert_eq!(found.ids, ids, "{name}");
        assert_eq!(
            hashing::blocks(&found.ids, 16, None, None).unwrap().len(),
            ids.len() / 16
        );
        rendered += 1;
    }
    assert_eq!(rendered, 74);
}

/// A worker of Dynamo 1.6.1 published these blocks when a frontend sent it this question.
#[test]
fn hashes_of_a_chat_are_those_that_its_worker_published() {
    let question = "The quick brown fox jumps over the lazy dog. ".repeat(8);
    let body =
        serde_json::json!({"messages": [{"role": "user", "content": question}], "max_tokens": 4}).to_string();
    let metrics = Metrics::new().unwrap();
    let found = MODEL
        .encode(
            Endpoint::Chat,
            body.as_bytes(),
            caps(),
            Timestamp::UNIX_EPOCH,
            &metrics,
        )
        .unwrap();
    let expected = [
        6_558_454_304_567_739_656,
        15_413_560_240_769_216_273,
        8_428_182_688_510_329_013,
        8_376_359_371_422_519_671,
        15_850_349_503_627_144_492,
    ];
    assert_eq!(hashing::blocks(&found.ids, 16, None, None).unwrap(), expected);
}
