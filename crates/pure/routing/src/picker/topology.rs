//! Which prefill and decode workers may hand KV blocks to each other.

use std::collections::{BTreeMap, BTreeSet};

use continuum_fleet::view::{Card, KvTransferEnforcement, Worker};

/// What a prefill worker asks of the decode worker of its pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Zone {
    /// Nothing.
    Free,
    /// The decode worker shares this value of this domain.
    Required {
        /// Name of the domain.
        domain: String,
        /// Value that both need.
        value: String,
    },
    /// It is cheaper if it does.
    Preferred {
        /// Name of the domain.
        domain: String,
        /// Value to share.
        value: String,
        /// Factor of the cost, as upstream: `exp(-tanh(weight))`.
        factor: f64,
    },
}

impl Zone {
    /// The zone of a prefill worker. A domain without a value of its own binds nobody: there is nothing to share.
    pub(super) fn of(worker: &Worker) -> Self {
        let asked = worker.card.as_ref().and_then(|card| {
            let transfer = card.kv_transfer.as_ref()?;
            Some((transfer, card.topology_domains.get(&transfer.domain)?.clone()))
        });
        let Some((transfer, value)) = asked else {
            return Self::Free;
        };
        let domain = transfer.domain.clone();
        match transfer.enforcement {
            KvTransferEnforcement::Required => Self::Required { domain, value },
            KvTransferEnforcement::Preferred { weight } if weight.is_finite() => Self::Preferred {
                domain,
                value,
                factor: (-weight.tanh()).exp(),
            },
            KvTransferEnforcement::Preferred { .. } => Self::Free,
        }
    }

    /// The factor of the prefill cost for a decode worker; `None` when the two may not be paired.
    pub(super) fn factor(&self, decode: Option<&Card>) -> Option<f64> {
        let shares = |domain: &str, value: &str| {
            decode
                .and_then(|card| card.topology_domains.get(domain))
                .is_some_and(|own| own == value)
        };
        match self {
            Self::Free => Some(1.0),
            Self::Required { domain, value } => shares(domain, value).then_some(1.0),
            Self::Preferred {
                domain,
                value,
                factor,
            } => Some(if shares(domain, value) { *factor } else { 1.0 }),
        }
    }
}

/// What the prefill workers of one group ask, all together.
#[derive(Debug, Default)]
pub(super) struct Offers {
    anyone: bool,
    required: BTreeSet<(String, String)>,
}

impl Offers {
    /// Adds the zone of one prefill worker.
    pub(super) fn add(&mut self, zone: &Zone) {
        match zone {
            Zone::Free | Zone::Preferred { .. } => self.anyone = true,
            Zone::Required { domain, value } => {
                self.required.insert((domain.clone(), value.clone()));
            }
        }
    }

    /// Whether a decode worker can be paired with one of them.
    pub(super) fn fit(&self, decode: &Worker) -> bool {
        let domains = decode.card.as_ref().map(|card| &card.topology_domains);
        self.anyone
            || domains
                .into_iter()
                .flatten()
                .any(|(domain, value)| self.required.contains(&(domain.clone(), value.clone())))
    }
}

/// Numbers of distinct values, in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct Classes(BTreeMap<Vec<(String, String)>, u32>);

impl Classes {
    /// The number of the domains of a decode worker: workers of one number are alike to every zone.
    pub(super) fn number(&mut self, decode: &Worker) -> u32 {
        let domains = decode.card.as_ref().map(|card| &card.topology_domains);
        let domains = domains
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(domains).or_insert(next)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
