//! `GET` and `POST /admin/dynamo/explain`: a pick that nobody is dispatched by.

use std::sync::Arc;

use bytes::Bytes;
use continuum_fleet::ids::ModelName;
use continuum_routing::picker::{Explained, Standing};
use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{Admin, json, with_status};
use crate::{
    app::App,
    error::Error,
    ingress::{body, routes::Route, strip::Disclosure},
    prompts::{Known, Unknown},
    proxy::{self, Body},
    select,
};

/// The answer.
#[derive(Serialize)]
struct Explanation {
    /// As asked.
    model: String,
    /// The name that workers are looked up by, after `dynamo.shim.model_map`.
    looked_up: String,
    prompt_tokens: u64,
    /// Why the prompt's blocks do not count; `null` where they do, or no prompt was asked about.
    unscored: Option<&'static str>,
    outcome: &'static str,
    pools: Vec<Pool>,
    candidates: Vec<Candidate>,
}

#[derive(Serialize)]
struct Pool {
    namespace: String,
    /// A replica can take a request.
    usable: bool,
    /// A usable replica lists the name.
    listed: bool,
}

#[derive(Serialize)]
struct Candidate {
    graph: String,
    namespace: String,
    instance_id: String,
    worker_id: String,
    dp_rank: Option<u32>,
    role: &'static str,
    /// Lower is better; `null` where it is undefined.
    cost: Option<f64>,
    load: &'static str,
    standing: &'static str,
    /// What it holds of the prompt; `null` where only load counts.
    prompt: Option<Holds>,
}

/// Blocks of a prompt.
#[derive(Serialize)]
struct Holds {
    device_blocks: u32,
    host_blocks: u32,
    disk_blocks: u32,
    /// Blocks that these are worth.
    credit_blocks: f64,
    /// Prompt tokens that it would have to compute.
    uncached_tokens: u64,
    /// Blocks that open requests of this router hold there already.
    shared_blocks: u32,
}

/// Answers a dry run: of a name and a prompt length, or of a request body as a client would send it.
pub(super) async fn answer(admin: &Arc<Admin>, request: Request<Incoming>) -> Result<Response<Body>, Error> {
    let (head, mut body) = request.into_parts();
    let mut known = None;
    let (model, prompt_tokens) = if head.method == Method::POST {
        let room = admin.app.bodies.room(&admin.app.live());
        let body = proxy::read_body(&mut body, &room, None).await?;
        let inspected = body::inspect(&body, Disclosure::Hidden)?;
        known = Some(know(&admin.app, &inspected, &body).await);
        let length = known
            .as_ref()
            .and_then(|known| known.as_ref().ok())
            .map(Known::length);
        let estimated = inspected.prompt.estimated_tokens();
        (inspected.model, length.unwrap_or(estimated))
    } else {
        match asked(&head.uri) {
            Ok(asked) => asked,
            Err(message) => {
                let body = serde_json::json!({ "error": {
                    "message": message, "type": "invalid_request_error", "param": null, "code": "invalid_query",
                }});
                return Ok(with_status(http::StatusCode::BAD_REQUEST, &body));
            }
        }
    };
    let made = admin.aside(move |admin| json(&explain(&admin.app, &model, prompt_tokens, known.as_ref())));
    Ok(made.await)
}

/// The blocks of the prompt, where these would count for a client's request.
async fn know(app: &App, inspected: &body::Inspected, body: &Bytes) -> Result<Known, Unknown> {
    #[derive(Default, Deserialize)]
    struct Asks {
        messages: Option<IgnoredAny>,
        input: Option<IgnoredAny>,
    }
    let route = match serde_json::from_slice(body).unwrap_or_default() {
        Asks {
            messages: Some(_), ..
        } => Route::ChatCompletions,
        Asks { input: Some(_), .. } => Route::Responses,
        Asks { .. } => Route::Completions,
    };
    let live = Arc::clone(&app.live());
    let model = live.model_map.get(&inspected.model).unwrap_or(&inspected.model);
    let body = inspected.outbound(body, None);
    app.fleet
        .prompts
        .known(&app.fleet, &live, route, model, &body)
        .await
}

fn explain(
    app: &App,
    model: &ModelName,
    prompt_tokens: u64,
    known: Option<&Result<Known, Unknown>>,
) -> Explanation {
    let live = app.live();
    let set = app.backends.load();
    let unscored = known
        .and_then(|known| known.as_ref().err())
        .map(|why| why.as_str());
    let known = known.and_then(|known| known.as_ref().ok());
    let dry = select::explain(&app.fleet, &live, &set, model, prompt_tokens, known);
    Explanation {
        model: model.to_string(),
        looked_up: dry.looked_up.to_string(),
        prompt_tokens,
        unscored,
        outcome: outcome(live.pinning, &dry),
        pools: dry
            .pools
            .iter()
            .map(|(graph, usable, listed)| Pool {
                namespace: graph.to_string(),
                usable: *usable,
                listed: *listed,
            })
            .collect(),
        candidates: dry.candidates.iter().map(Candidate::of).collect(),
    }
}

fn outcome(pinning: bool, dry: &select::DryRun) -> &'static str {
    let stands = |standing| dry.candidates.iter().any(|row| row.standing == standing);
    if !pinning {
        "not_pinned"
    } else if !dry.candidates.is_empty() && !dry.pools.iter().any(|(_, usable, _)| *usable) {
        "no_usable_pool"
    } else if stands(Standing::Chosen) {
        "chosen"
    } else if dry.candidates.is_empty() {
        "no_model"
    } else if stands(Standing::NotReady) {
        "not_ready"
    } else {
        "no_candidate"
    }
}

impl Candidate {
    fn of(row: &Explained) -> Self {
        Self {
            graph: row.graph.to_string(),
            namespace: row.worker.namespace.to_string(),
            instance_id: row.worker.instance.hex(),
            worker_id: row.worker.instance.decimal(),
            dp_rank: row.rank.map(|rank| rank.0),
            role: row.role.as_str(),
            cost: row.cost,
            load: row.freshness.as_str(),
            standing: row.standing.as_str(),
            prompt: row.credit.map(|credit| Holds {
                device_blocks: credit.overlap.device,
                host_blocks: credit.overlap.host,
                disk_blocks: credit.overlap.disk,
                credit_blocks: credit.blocks,
                uncached_tokens: credit.uncached_tokens,
                shared_blocks: credit.shared,
            }),
        }
    }
}

/// `?model=…[&prompt_tokens=…]`.
fn asked(uri: &Uri) -> Result<(ModelName, u64), &'static str> {
    let (mut model, mut prompt_tokens) = (None, 1);
    for pair in uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = value.replace('+', " ");
        let value = percent_decode_str(&value)
            .decode_utf8()
            .map_err(|_| "the query is not UTF-8")?;
        match name {
            "model" => model = Some(ModelName::from(&*value)),
            "prompt_tokens" => {
                prompt_tokens = value.parse().map_err(|_| "`prompt_tokens` is not a number")?;
            }
            _ => return Err("the query may hold `model` and `prompt_tokens`"),
        }
    }
    let model = model
        .filter(|model| !model.as_str().is_empty())
        .ok_or("name a model: ?model=NAME[&prompt_tokens=N]")?;
    Ok((model, prompt_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_model_and_may_name_a_length() {
        let asked = |query: &str| asked(&format!("/admin/dynamo/explain{query}").parse().unwrap());
        assert_eq!(asked("?model=Qwen%2FQwen3"), Ok(("Qwen/Qwen3".into(), 1)));
        assert_eq!(asked("?prompt_tokens=512&model=a+b"), Ok(("a b".into(), 512)));
        for wrong in [
            "",
            "?model=",
            "?model=a&prompt_tokens=x",
            "?model=a&tokens=1",
            "?model=%FF",
        ] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
