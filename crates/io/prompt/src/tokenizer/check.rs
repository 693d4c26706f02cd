//! What a tokenizer file must not say: the library takes memory for the highest id, and trusts the lists it is given.

use serde_json::{Map, Value};

/// Ids may leave gaps, for tokens that are added later; a table with a place for every id must stay in proportion.
const IDS_PER_ENTRY: u64 = 4;

/// See [`IDS_PER_ENTRY`]; small files may start their added tokens high.
const SPARE_IDS: u64 = 200_000;

pub(super) fn file(json: &Value) -> Result<(), &'static str> {
    let model = json
        .get("model")
        .and_then(Value::as_object)
        .ok_or("it has no model")?;
    let added = match json.get("added_tokens") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(tokens)) => tokens.as_slice(),
        Some(_) => return Err("its added tokens are no list"),
    };
    let (entries, highest) = match model.get("vocab") {
        Some(Value::Object(vocab)) => {
            let mut highest = 0;
            for id in vocab.values() {
                highest = highest.max(id.as_u64().ok_or("an id is no number")?);
            }
            (vocab.len(), highest)
        }
        Some(Value::Array(vocab)) => {
            for entry in vocab {
                let entry = entry.as_array().map(Vec::as_slice);
                let Some([Value::String(_), Value::Number(score)]) = entry else {
                    return Err("an entry of its vocabulary is no token with a score");
                };
                if !score.as_f64().is_some_and(f64::is_finite) {
                    return Err("a score is no number");
                }
            }
            (vocab.len(), 0)
        }
        Some(_) | None => return Err("it has no vocabulary"),
    };
    if let (Some(Value::Object(vocab)), Some(Value::Array(list))) = (model.get("vocab"), model.get("merges"))
    {
        let prefix = model.get("continuing_subword_prefix").and_then(Value::as_str);
        merges(vocab, list, prefix.unwrap_or_default())?;
    }
    if entries == 0 {
        return Err("its vocabulary is empty");
    }
    let mut highest = highest;
    for token in added {
        highest = highest.max(
            token
                .get("id")
                .and_then(Value::as_u64)
                .ok_or("an added token has no id")?,
        );
    }
    let entries = u64::try_from(entries + added.len()).unwrap_or(u64::MAX);
    if highest > entries.saturating_mul(IDS_PER_ENTRY).saturating_add(SPARE_IDS) {
        return Err("its ids are too high for its size");
    }
    Ok(())
}

/// Both parts of a merge, and what it makes of them, are tokens: the library looks none of them up. The right part is cut
/// where the prefix of parts of words ends.
fn merges(vocab: &Map<String, Value>, merges: &[Value], prefix: &str) -> Result<(), &'static str> {
    for merge in merges {
        let pair = match merge {
            Value::String(pair) => pair.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        let (left, right) = pair.ok_or("a merge is no pair of tokens")?;
        let rest = right
            .strip_prefix(prefix)
            .ok_or("a merge lacks the prefix of parts of words")?;
        if ![left, right, &format!("{left}{rest}")]
            .into_iter()
            .all(|token| vocab.contains_key(token))
        {
            return Err("a merge is of something that is no token");
        }
    }
    Ok(())
}
