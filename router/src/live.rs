//! What a request reads of the configuration, laid out once per reload.

use std::{collections::BTreeMap, sync::Arc};

use continuum_config::{Config, model};
use continuum_fleet::ids::ModelName;
use continuum_routing::picker;

/// One configuration in force.
#[derive(Clone, Debug)]
pub struct Live {
    /// The whole of it.
    pub config: Arc<Config>,
    /// Its number: 1 at start, one more for each reload that changed something.
    pub version: u64,
    /// Requests are pinned to workers.
    pub pinning: bool,
    /// `dynamo.shim.model_map`.
    pub model_map: BTreeMap<ModelName, ModelName>,
    /// Settings of a pick by the prompt's blocks; `None` while `dynamo.kv` is off.
    pub kv: Option<picker::kv::Settings>,
    /// `dynamo.kv.send_token_data`.
    pub token_data: bool,
    /// Settings of a pick.
    pub picker: picker::Settings,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// Bytes of all request bodies together.
    pub body_budget: usize,
}

impl Live {
    /// Lays a configuration out.
    #[must_use]
    pub fn new(config: Arc<Config>, version: u64) -> Self {
        let dynamo = &config.dynamo;
        Self {
            version,
            pinning: dynamo.enabled && config.disaggregated(),
            model_map: dynamo
                .shim
                .model_map
                .iter()
                .map(|(asked, served)| (ModelName::from(asked.as_str()), ModelName::from(served.as_str())))
                .collect(),
            kv: dynamo.kv.enabled.then(|| by_blocks(&dynamo.kv)),
            token_data: dynamo.kv.send_token_data,
            picker: picker::Settings {
                max_staleness: u64::try_from(dynamo.load.max_staleness.as_millis()).unwrap_or(u64::MAX),
                ties: match dynamo.picker.ties {
                    model::Ties::Cursor => picker::Ties::Rotate,
                    model::Ties::Random => picker::Ties::Random,
                },
            },
            body_limit: usize::try_from(config.server.body_limit).unwrap_or(usize::MAX),
            body_budget: usize::try_from(config.server.bodies()).unwrap_or(usize::MAX),
            config,
        }
    }
}

fn by_blocks(kv: &model::Kv) -> picker::kv::Settings {
    let bypass = &kv.conditional_disaggregation;
    picker::kv::Settings {
        overlap_score_credit: kv.overlap_score_credit,
        overlap_score_credit_decay: kv.overlap_score_credit_decay,
        prefill_load_scale: kv.prefill_load_scale,
        temperature: kv.router_temperature,
        tiers: picker::kv::Tiers {
            device: kv.tier_weights.device,
            host: kv.tier_weights.host,
            disk: kv.tier_weights.disk,
        },
        bypass: bypass.enabled.then(|| picker::kv::Bypass {
            policy: match bypass.policy {
                model::BypassPolicy::IslBounding => picker::kv::BypassPolicy::IslBounding,
                model::BypassPolicy::PrefillLoad => picker::kv::BypassPolicy::PrefillLoad,
                model::BypassPolicy::IslOrLoad => picker::kv::BypassPolicy::IslOrLoad,
            },
            eff_isl_threshold: bypass.eff_isl_threshold.into(),
            eff_isl_ratio_threshold: bypass.eff_isl_ratio_threshold,
            prefill_busy_threshold: bypass.prefill_busy_threshold,
            decode_busy_threshold: bypass.decode_busy_threshold,
        }),
    }
}
