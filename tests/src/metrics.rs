//! The pages of all metrics, written from the router's own catalogue of them and from a controller's registry.

use std::collections::{BTreeMap, BTreeSet};

use continuum_controller::metrics::Metrics;
use continuum_router::metrics::catalogue::{Family, Values, catalogue};

use prometheus::proto::{MetricFamily, MetricType};

/// The page of a router.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\nServed at `/metrics` of the admin listener, and of `telemetry.metrics_bind_address` without a \
         token.\nWritten by `make generate`.\n\nNo label ever holds an address, a secret or a text of a client: values \
         are fixed words, names out of the\nconfiguration, or (`worker`, `dp_rank`) as many as the fleet has.\n\n\
         | family | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in catalogue() {
        page.push_str(&row(&family));
    }
    page
}

fn row(family: &Family) -> String {
    let labels: Vec<String> = family
        .labels
        .iter()
        .map(|(label, values)| {
            let values = match values {
                Values::Closed(values) => values
                    .iter()
                    .map(|value| format!("`{value}`"))
                    .collect::<Vec<_>>()
                    .join(" "),
                Values::Configured(what) | Values::Fleet(what) => format!("({what})"),
            };
            format!("`{label}`: {values}")
        })
        .collect();
    format!(
        "| `{}` | {} | {} | {} |\n",
        family.name,
        family.kind.as_str(),
        labels.join("<br>"),
        family.help
    )
}

/// The page of a controller: all of its series are there from the start.
///
/// # Errors
/// When a controller registers a name twice.
pub fn controller_page() -> Result<String, prometheus::Error> {
    let mut page = String::from(
        "# Metrics of the operator\n\nServed at `/metrics` of port 8081 of each controller. Written by `make generate`; \
         those of routers are on [their own page](metrics.md).\n\nEach replica counts for itself: writes are \
         those of the leader, sessions and sources those of every replica.\nNo label ever holds a name: values are fixed \
         words.\n\n| family | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in Metrics::new()?.registry.gather() {
        page.push_str(&controller_row(&family));
    }
    Ok(page)
}

fn controller_row(family: &MetricFamily) -> String {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for label in family.get_metric().iter().flat_map(|series| series.get_label()) {
        values.entry(label.name()).or_default().insert(label.value());
    }
    let labels: Vec<String> = values
        .into_iter()
        .map(|(label, values)| {
            let values: Vec<String> = values.into_iter().map(|value| format!("`{value}`")).collect();
            format!("`{label}`: {}", values.join(" "))
        })
        .collect();
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    };
    let (name, help) = (family.name(), family.help());
    format!("| `{name}` | {kind} | {} | {help} |\n", labels.join("<br>"))
}
