use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

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

/// Loaded once: reading ten megabytes takes a while in a build for tests.
static REAL: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::load(
        &std::fs::read(model_dir().join("tokenizer.json")).unwrap(),
        cache(),
    )
    .unwrap()
});

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
    let real = &*REAL;
    assert!(real.cuts.is_some());
    let pieces = prop::collection::vec(prop::sample::select(words.to_vec()), 0..900);
    proptest!(ProptestConfig::with_cases(48), |(pieces in pieces)| {
        check(real, &pieces.concat())?;
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
    let tokenizer = &*REAL;
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
    let tokenizer = &*REAL;
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

/// Small tokenizers of every kind, with most of what a file can name.
fn kinds() -> Vec<Value> {
    let bpe = strange(&[token("<|x|>", |_| ())]);
    let vocab = |json: Value| {
        let mut file = bpe.clone();
        file["model"] = json;
        file
    };
    let words: Value = ["[UNK]", "a", "b", "ab", "##b", "▁", "▁a", "<0x61>"]
        .iter()
        .zip(0..)
        .map(|(word, id)| ((*word).to_owned(), json!(id)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let scores: Value = ["<unk>", "a", "b", "ab", "▁", "▁a"]
        .iter()
        .map(|word| json!([word, -1.5]))
        .collect();
    let mut files = vec![
        bpe.clone(),
        vocab(
            json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": words}),
        ),
        vocab(json!({"type": "WordLevel", "unk_token": "[UNK]", "vocab": words})),
        vocab(json!({"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": scores})),
    ];
    let mut rich = bpe.clone();
    rich["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Strip", "strip_left": true, "strip_right": false}]});
    rich["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": false}, {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]});
    rich["post_processor"] = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|x|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<|x|>": {"id": "<|x|>", "ids": [19], "tokens": ["<|x|>"]}}});
    rich["truncation"] =
        json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0});
    rich["padding"] = json!({"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    files.push(rich);
    files
}

fn places(json: &Value, at: &mut Vec<String>, all: &mut Vec<String>) {
    all.push(at.concat());
    let children: Vec<(String, &Value)> = match json {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (name, value) in children {
        at.push(format!("/{name}"));
        places(value, at, all);
        at.pop();
    }
}

#[test]
fn changed_files_are_refused_or_work() {
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(7),
        json!(65_536),
        json!(4_294_967_295_u64),
        json!(18_446_744_073_709_551_615_u64),
        json!(0.5),
        json!(-1e300),
        json!(""),
        json!(" "),
        json!("a"),
        json!("▁"),
        json!("é"),
        json!("\u{0}"),
        json!("(((("),
        json!("(a*)*b"),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"a": 1}),
        json!(["a", "b"]),
        json!([["a", "b", "c"]]),
        json!("ByteLevel"),
        json!("NFKC"),
    ];
    let texts = [
        "",
        "a",
        "ab <|x|> abc",
        "  a\n\né🙂",
        "\u{0}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    ];
    std::panic::set_hook(Box::new(|_| ()));
    let mut panics = BTreeSet::new();
    let mut loaded = 0;
    for (kind, file) in kinds().iter().enumerate() {
        let mut all = Vec::new();
        places(file, &mut Vec::new(), &mut all);
        for place in &all {
            for value in &odd {
                let mut changed = file.clone();
                if let Some(at) = changed.pointer_mut(place) {
                    *at = value.clone();
                }
                let changed = changed.to_string();
                let found = std::panic::catch_unwind(|| {
                    let Ok(tokenizer) = Tokenizer::load(changed.as_bytes(), cache()) else {
                        return 0;
                    };
                    for text in texts {
                        let _any = tokenizer.encode(text, 1000, soon());
                    }
                    1
                });
                match found {
                    Ok(one) => loaded += one,
                    Err(_) => drop(panics.insert(format!("{kind} {place} {value}"))),
                }
            }
        }
    }
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    for _ in 0..500 {
        let all_kinds = kinds();
        let mut changed = all_kinds[next(all_kinds.len())].clone();
        for _ in 0..=next(3) {
            let mut all = Vec::new();
            places(&changed, &mut Vec::new(), &mut all);
            let value = if next(2) == 0 {
                odd[next(odd.len())].clone()
            } else {
                let other = &all_kinds[next(all_kinds.len())];
                let mut theirs = Vec::new();
                places(other, &mut Vec::new(), &mut theirs);
                other.pointer(&theirs[next(theirs.len())]).unwrap().clone()
            };
            *changed.pointer_mut(&all[next(all.len())]).unwrap() = value;
        }
        let changed = changed.to_string();
        let found = std::panic::catch_unwind(|| {
            let Ok(tokenizer) = Tokenizer::load(changed.as_bytes(), cache()) else {
                return;
            };
            for text in texts {
                let _any = tokenizer.encode(text, 1000, soon());
            }
        });
        if found.is_err() {
            panics.insert(changed);
        }
    }
    let _hook = std::panic::take_hook();
    assert!(loaded > 500, "{loaded}");
    assert!(
        panics.is_empty(),
        "{} panics:\n{}",
        panics.len(),
        panics.into_iter().collect::<Vec<_>>().join("\n")
    );
}
