//! What the configuration asks of this crate.

use std::{collections::BTreeSet, path::PathBuf};

use continuum_config::model::Kv;

use crate::{
    artifact::{Checksum, Key},
    fetch::{Hub, Rules},
};

/// Settings; every one of them may change while the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Off: nothing is fetched, loaded or rendered.
    pub enabled: bool,
    /// What may be fetched.
    pub rules: Rules,
    /// The Hub.
    pub hub: Hub,
    /// Where fetched files are kept.
    pub cache_dir: Option<PathBuf>,
    /// Files that were reviewed.
    pub pinned: BTreeSet<Checksum>,
    /// Loaded tokenizers.
    pub max_loaded: usize,
    /// All their files together, in bytes.
    pub max_total_bytes: u64,
    /// The longest prompt in tokens.
    pub max_tokens: usize,
    /// The longest rendered prompt in bytes.
    pub max_text_bytes: usize,
}

impl Settings {
    /// The settings of a configuration; the Hub is the environment's.
    #[must_use]
    pub fn new(kv: &Kv, hub: Hub) -> Self {
        let limits = &kv.limits;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            enabled: kv.enabled,
            rules: Rules {
                http: kv.allow_http_artifacts,
                hub: kv.allow_hf_artifacts,
                cap: limits.max_artifact_bytes,
            },
            hub,
            cache_dir: kv.artifact_cache_dir.clone(),
            pinned: kv
                .pinned_artifacts
                .iter()
                .filter_map(|pin| Checksum::parse(pin))
                .collect(),
            max_loaded: size(limits.max_artifacts.into()),
            max_total_bytes: limits.max_artifacts_total_bytes,
            max_tokens: size(limits.max_prompt_tokens.into()),
            max_text_bytes: size(limits.max_rendered_bytes),
        }
    }

    pub(crate) fn pins(&self, key: &Key) -> bool {
        key.checksums().all(|checksum| self.pinned.contains(&checksum))
    }
}

impl Hub {
    /// As the environment has it: `HF_ENDPOINT` and `HF_TOKEN`.
    #[must_use]
    pub fn of(mut variable: impl FnMut(&str) -> Option<String>) -> Self {
        let mut set = |name| {
            variable(name)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let default = Self::default();
        Self {
            endpoint: set("HF_ENDPOINT").unwrap_or(default.endpoint),
            token: set("HF_TOKEN"),
        }
    }
}
