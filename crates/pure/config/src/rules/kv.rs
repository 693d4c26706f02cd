//! Cache-aware choices.

use super::Report;
use crate::model::{BypassPolicy, Config};

const KV: &str = "dynamo.kv";

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let kv = &config.dynamo.kv;
    for (index, pin) in kv.pinned_artifacts.iter().enumerate() {
        if !is_pin(pin) {
            report.add(
                &format!("{KV}.pinned_artifacts[{index}]"),
                "a pin is \"blake3:\" and 64 lower-case hex digits (b3sum FILE)",
            );
        }
    }
    report.unique(
        &format!("{KV}.pinned_artifacts"),
        "",
        kv.pinned_artifacts.iter().map(String::as_str),
        "pin",
    );
    let conditional = &kv.conditional_disaggregation;
    let looks_at_load = match conditional.policy {
        BypassPolicy::PrefillLoad | BypassPolicy::IslOrLoad => true,
        BypassPolicy::IslBounding => false,
    };
    if conditional.enabled && looks_at_load && conditional.prefill_busy_threshold.is_none() {
        report.add(
            &format!("{KV}.conditional_disaggregation.policy"),
            "this policy looks at the load of the prefill pool; set prefill_busy_threshold",
        );
    }
    let limits = &kv.limits;
    if limits.max_artifact_bytes > limits.max_artifacts_total_bytes {
        report.add(
            &format!("{KV}.limits.max_artifact_bytes"),
            "one artifact cannot be larger than max_artifacts_total_bytes",
        );
    }
    if limits.max_frame_bytes > limits.event_bytes_budget {
        report.add(
            &format!("{KV}.limits.max_frame_bytes"),
            "one frame cannot be larger than event_bytes_budget",
        );
    }
}

fn is_pin(text: &str) -> bool {
    text.strip_prefix("blake3:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}
