use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    limits::{MIN_CACHED_PART_BYTES, TOKEN_CACHE_BYTES},
    model::tests::model_dir,
};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn cache() -> Arc<Cache> {
    Arc::new(Cache::new(TOKEN_CACHE_BYTES))
}

fn real() -> Tokenizer {
    Tokenizer::load(
        &std::fs::read(model_dir().join("tokenizer.json")).unwrap(),
        cache(),
    )
    .unwrap()
}

/// Merges across everything, spaces included, a prefix at the start, and special tokens that overlap each other.
fn strange(added: &[Value]) -> Value {
    let mut vocab: serde_json::Map<_, _> = ["▁", "a", "b", "c", "<", "|", ">", "x", " ", "\n", "é"]
        .iter()
        .zip(0..)
        .map(|(c, id)| ((*c).to_owned(), json!(id)))
        .collect();
    let merges = [
        ["a", "b"],
        ["ab", "c"],
        ["▁", "a"],
        [">", "a"],
        ["|", ">"],
        ["<", "|"],
        ["\n", "\n"],
        ["▁", "▁"],
    ];
    for [left, right] in merges {
        let id = vocab.len();
        vocab.insert(format!("{left}{right}"), json!(id));
    }
    let first = vocab.len();
    let added: Vec<_> = added
        .iter()
        .enumerate()
        .map(|(index, token)| {
            let mut token = token.clone();
            token["id"] = json!(first + index);
            token
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null, "decoder": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "added_tokens": added,
        "model": {"type": "BPE", "dropout": null, "unk_token": "x", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    })
}

fn token(content: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut token = json!({"content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    change(&mut token);
    token
}

/// Vocabularies that are cut, and ones whose tokens look at what is beside them.
fn strange_tokenizers() -> Vec<Tokenizer> {
    let plain = || token("<|x|>", |_| ());
    [
        vec![
            plain(),
            token("<|", |_| ()),
            token("|>a", |token| token["special"] = json!(false)),
        ],
        vec![plain(), token("<|a", |token| token["normalized"] = json!(true))],
        vec![
            plain(),
            token("b", |token| token["rstrip"] = json!(true)),
            token("<|a|>", |_| ()),
        ],
        vec![
            plain(),
            token("b", |token| token["lstrip"] = json!(true)),
            token("<|a|>", |_| ()),
        ],
        vec![
            plain(),
            token("\n", |_| ()),
            token("<|a|>", |token| token["rstrip"] = json!(true)),
        ],
        vec![plain(), token("a", |token| token["single_word"] = json!(true))],
    ]
    .iter()
    .map(|added| Tokenizer::load(strange(added).to_string().as_bytes(), cache()).unwrap())
    .collect()
}

fn check(tokenizer: &Tokenizer, text: &str) -> Result<(), TestCaseError> {
    let whole = tokenizer.encode_part(text).unwrap();
    // Once to fill the cache, once from it.
    for round in ["cold", "warm"] {
        prop_assert_eq!(
            &tokenizer.encode(text, usize::MAX, soon()).unwrap(),
            &whole,
            "{}",
            round
        );
    }
    Ok(())
}

#[test]
fn parts_from_the_cache_are_what_the_whole_encodes_to() {
    let words = [
        "word ",
        "안녕 ",
        "<|im_start|>",
        "<|im_end|>",
        "\n",
        "  ",
        "<|im",
        "_start|>",
        "é",
        "🙂",
        "a",
        "1234",
        "<think>",
        "</think>",
        "<tool_call>",
        "<|endoftext|>",
        "'s",
        "\r\n",
    ];
    let real = real();
    assert!(real.cuts.is_some());
    let pieces = prop::collection::vec(prop::sample::select(words.to_vec()), 0..900);
    proptest!(ProptestConfig::with_cases(48), |(pieces in pieces)| {
        check(&real, &pieces.concat())?;
    });
}

#[test]
fn parts_of_strange_tokenizers_are_what_the_whole_encodes_to() {
    let tokenizers = strange_tokenizers();
    let cut: Vec<bool> = tokenizers
        .iter()
        .map(|tokenizer| tokenizer.cuts.is_some())
        .collect();
    assert_eq!(cut, [true, true, true, true, false, false]);
    let words = [
        "a", "b", "c", "<", "|", ">", "x", "<|x|>", "<|a|>", " ", "\n", "abc", "é", "<|a", "|>a",
    ];
    let pieces = prop::collection::vec(prop::sample::select(words.to_vec()), 0..3000);
    proptest!(ProptestConfig::with_cases(48), |(pieces in pieces)| {
        let text = pieces.concat();
        for tokenizer in &tokenizers {
            check(tokenizer, &text)?;
        }
    });
}

#[test]
fn a_conversation_that_goes_on_is_not_encoded_again() {
    let tokenizer = real();
    let turn = |index: usize| format!("<|im_start|>user\n{index} {}<|im_end|>\n", "long ".repeat(400));
    let mut text = String::new();
    for index in 0..5 {
        text.push_str(&turn(index));
        let parts = tokenizer.cuts.as_ref().unwrap().parts(&text);
        assert_eq!(parts.iter().map(|part| part.text).collect::<String>(), text);
        let known = parts
            .iter()
            .filter(|part| part.keep && tokenizer.cache.find(tokenizer.serial, part.text).is_some());
        assert_eq!(known.count(), index, "all earlier turns");
        tokenizer.encode(&text, usize::MAX, soon()).unwrap();
    }
}

#[test]
fn the_cache_stays_within_its_budget_and_keeps_what_is_asked_for() {
    let cache = Cache::new(1_000_000);
    let text = |index: usize| format!("{index:06}{}", "x".repeat(MIN_CACHED_PART_BYTES));
    for index in 0..5000 {
        cache.keep(1, &text(index), vec![7; 300]);
        assert!(cache.find(1, &text(0)).is_some(), "{index}");
        assert!(cache.bytes() <= 1_000_000, "{index}: {}", cache.bytes());
    }
    assert!(cache.find(1, &text(1)).is_none());
    assert!(cache.find(1, &text(4999)).is_some());
    assert!(cache.find(2, &text(4999)).is_none(), "another tokenizer's");
    cache.keep(1, &"x".repeat(2_000_000), vec![]);
    assert!(cache.bytes() <= 1_000_000);
}

#[test]
fn null_characters_are_taken_out_and_long_texts_refused() {
    let tokenizer = real();
    assert_eq!(
        tokenizer.encode("a\0b", 9, soon()).unwrap(),
        tokenizer.encode("ab", 9, soon()).unwrap()
    );
    assert!(matches!(
        tokenizer.encode("a b c", 2, soon()),
        Err(Error::TooLong(2))
    ));
    assert_eq!(tokenizer.encode("", 0, soon()).unwrap(), Vec::<u32>::new());
}

#[test]
fn files_that_would_take_too_much_are_refused() {
    let good = strange(&[token("<|x|>", |_| ())]);
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut json = good.clone();
        change(&mut json);
        Tokenizer::load(json.to_string().as_bytes(), cache()).is_err()
    };
    assert!(!refused(&|_| ()));
    assert!(refused(
        &|json| json["model"]["vocab"]["a"] = json!(4_000_000_000_u64)
    ));
    assert!(refused(
        &|json| json["added_tokens"][0]["id"] = json!(4_000_000_000_u64)
    ));
    assert!(refused(&|json| json["model"]["vocab"] = json!({})));
    assert!(refused(&|json| json["model"] = json!(null)));
    assert!(refused(&|json| json["added_tokens"] = json!({})));
    assert!(refused(
        &|json| json["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": [["a", "b"]]})
    ));
}
