//! From pin headers to workers, or to the refusal of a real frontend.

use std::sync::Arc;

use hyper::{HeaderMap, StatusCode};

use super::Pair;
use crate::{
    Fleet,
    worker::{Role, Worker},
};

/// What a client, or a router, pinned. A value that is not decimal counts as absent.
#[derive(Debug, Default)]
pub(super) struct Pins {
    worker: Option<u64>,
    prefill: Option<u64>,
    rank: Option<u32>,
    prefill_rank: Option<u32>,
}

impl Pins {
    /// The primary header wins; its alias counts only when the primary is absent.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        fn number<N: std::str::FromStr>(headers: &HeaderMap, names: &[&str]) -> Option<N> {
            let value = names.iter().find_map(|name| headers.get(*name))?;
            value.to_str().ok()?.parse().ok()
        }
        Self {
            worker: number(headers, &["x-dynamo-worker-instance-id", "x-worker-instance-id"]),
            prefill: number(
                headers,
                &["x-dynamo-prefill-instance-id", "x-prefill-instance-id"],
            ),
            rank: number(
                headers,
                &["x-dynamo-dp-rank", "x-dp-rank", "x-data-parallel-rank"],
            ),
            prefill_rank: number(headers, &["x-dynamo-prefill-dp-rank", "x-prefill-dp-rank"]),
        }
    }
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownModel,
    NotReady,
    /// A prefill pool exists and no prefill worker was named.
    NoPrefillId,
    /// No worker was named, or the named one is not there.
    Invalid,
    /// The pinned worker was killed and is still registered.
    Dead,
}

impl Refusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::UnknownModel => StatusCode::NOT_FOUND,
            Self::NotReady | Self::Dead => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoPrefillId => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Invalid => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn message(self, model: &str) -> String {
        match self {
            Self::UnknownModel => "Model not found".to_owned(),
            Self::NotReady => {
                format!("Model `{model}` is not ready to serve requests yet. Please retry shortly.")
            }
            Self::NoPrefillId => "Failed to generate completions".to_owned(),
            Self::Invalid => "Invalid request".to_owned(),
            Self::Dead => "Service temporarily unavailable".to_owned(),
        }
    }
}

pub(super) fn resolve(fleet: &Fleet, model: &str, pins: &Pins) -> Result<Pair, Refusal> {
    let workers: Vec<_> = fleet.workers().into_iter().filter(|w| w.model == model).collect();
    if workers.is_empty() {
        return Err(Refusal::UnknownModel);
    }
    let has = |role| workers.iter().any(|w| w.role == role);
    if has(Role::Decode) != has(Role::Prefill) && !has(Role::Aggregated) {
        return Err(Refusal::NotReady);
    }
    let named = |roles: &[Role], id: u64, rank: u32| -> Result<(Arc<Worker>, u32), Refusal> {
        let worker = workers
            .iter()
            .find(|w| w.instance == id && roles.contains(&w.role))
            .ok_or(Refusal::Invalid)?;
        if rank >= worker.ranks() {
            return Err(Refusal::Invalid);
        }
        if worker.is_alive() {
            Ok((worker.clone(), rank))
        } else {
            Err(Refusal::Dead)
        }
    };
    let rank = pins.rank.unwrap_or(0);
    if !has(Role::Prefill) {
        let decode = named(
            &[Role::Aggregated, Role::Decode],
            pins.worker.ok_or(Refusal::Invalid)?,
            rank,
        )?;
        return Ok(Pair {
            prefill: None,
            decode,
        });
    }
    let prefill = pins.prefill.ok_or(Refusal::NoPrefillId)?;
    let decode = pins.worker.ok_or(Refusal::Invalid)?;
    Ok(Pair {
        prefill: Some(named(
            &[Role::Prefill],
            prefill,
            pins.prefill_rank.unwrap_or(rank),
        )?),
        decode: named(&[Role::Decode], decode, rank)?,
    })
}
