//! The page of all metrics, written from the router's own catalogue of them.

use continuum_router::metrics::catalogue::{Family, Values, catalogue};

/// The page.
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
