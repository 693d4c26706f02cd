//! The headers that carry a pin to a direct-mode frontend.
//!
//! Ids are decimal: a frontend treats a hex id as no header at all. A frontend that gets a rank for decode and
//! none for prefill uses the decode rank for both, so a pair carries both rank headers or neither. A frontend also
//! takes `x-tenant-id` for the salt of its prefix cache: a client's never reaches it.

use continuum_fleet::ids::{InstanceId, Rank};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Decode or aggregated worker.
pub const WORKER: HeaderName = HeaderName::from_static("x-dynamo-worker-instance-id");
/// Its rank.
pub const RANK: HeaderName = HeaderName::from_static("x-dynamo-dp-rank");
/// Prefill worker.
pub const PREFILL_WORKER: HeaderName = HeaderName::from_static("x-dynamo-prefill-instance-id");
/// Its rank.
pub const PREFILL_RANK: HeaderName = HeaderName::from_static("x-dynamo-prefill-dp-rank");

const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");

/// One worker of a pin; no rank when no card declares any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Instance id.
    pub instance: InstanceId,
    /// Global rank.
    pub rank: Option<Rank>,
}

/// Writes the pin into the head of a dispatch to a shim, in place of any pin and of any tenant that it holds.
///
/// `decode` is the decode or aggregated worker; `prefill` is given for a pair only, never beside an aggregated
/// worker.
pub fn write(headers: &mut HeaderMap, decode: Pinned, prefill: Option<Pinned>) {
    for name in [RANK, PREFILL_WORKER, PREFILL_RANK, TENANT] {
        headers.remove(name);
    }
    headers.insert(WORKER, HeaderValue::from(decode.instance.raw()));
    let Some(prefill) = prefill else {
        if let Some(rank) = decode.rank {
            headers.insert(RANK, HeaderValue::from(rank.0));
        }
        return;
    };
    headers.insert(PREFILL_WORKER, HeaderValue::from(prefill.instance.raw()));
    if let (Some(rank), Some(prefill_rank)) = (decode.rank, prefill.rank) {
        headers.insert(RANK, HeaderValue::from(rank.0));
        headers.insert(PREFILL_RANK, HeaderValue::from(prefill_rank.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(instance: u64, rank: Option<u32>) -> Pinned {
        Pinned {
            instance: InstanceId::new(instance),
            rank: rank.map(Rank),
        }
    }

    fn written(decode: Pinned, prefill: Option<Pinned>) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        // What an earlier pin of the same request may have left, and a client's tenant.
        for name in [WORKER, RANK, PREFILL_WORKER, PREFILL_RANK, TENANT] {
            headers.append(name.clone(), HeaderValue::from_static("7"));
            headers.append(name, HeaderValue::from_static("8"));
        }
        write(&mut headers, decode, prefill);
        let mut all: Vec<_> = headers
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_str().unwrap_or_default().to_owned()))
            .collect();
        all.sort();
        all
    }

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut all: Vec<_> = wanted
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_pair_carries_both_ranks_or_none() {
        let both = [
            ("x-dynamo-worker-instance-id", "18446744073709551615"),
            ("x-dynamo-prefill-instance-id", "1736491"),
        ];
        let ranks = [("x-dynamo-dp-rank", "0"), ("x-dynamo-prefill-dp-rank", "3")];
        assert_eq!(
            written(pinned(u64::MAX, Some(0)), Some(pinned(0x1a_7f2b, Some(3)))),
            pairs(&[both, ranks].concat())
        );
        for (rank, prefill_rank) in [(None, None), (Some(0), None), (None, Some(3))] {
            assert_eq!(
                written(pinned(u64::MAX, rank), Some(pinned(0x1a_7f2b, prefill_rank))),
                pairs(&both),
                "{rank:?} {prefill_rank:?}"
            );
        }
    }

    #[test]
    fn a_worker_alone_carries_its_rank_if_known() {
        assert_eq!(
            written(pinned(9, Some(1)), None),
            pairs(&[("x-dynamo-worker-instance-id", "9"), ("x-dynamo-dp-rank", "1")])
        );
        assert_eq!(
            written(pinned(9, None), None),
            pairs(&[("x-dynamo-worker-instance-id", "9")])
        );
    }
}
