//! What is valid but may not be meant: warnings of `config validate`, also logged at start.

use std::net::IpAddr;

use crate::{
    check::Places,
    limits::SHORT_TOKEN_BYTES,
    model::{BackendRole, BusRole, Config, DiscoverySource, Transport, Upstream},
    problem::Problem,
    rules::Report,
    value::{BackendUrl, Scheme},
};

/// What a program can do beyond ordinary routing. Every configuration parses the same everywhere; a program
/// that lacks something says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Discovery, load and pins (`dynamo`).
    pub dynamo: bool,
    /// The two Kubernetes sources, which come with the operator.
    pub kubernetes: bool,
    /// Cache-aware choices (`dynamo-kv`).
    pub dynamo_kv: bool,
    /// The event bus and subscriptions through brokers (`dynamo-event-bus`).
    pub dynamo_event_bus: bool,
}

impl Build {
    /// Everything that this configuration can ask for.
    pub const FULL: Self = Self {
        dynamo: true,
        kubernetes: true,
        dynamo_kv: true,
        dynamo_event_bus: true,
    };
}

/// The warnings for a valid configuration.
pub(crate) fn advise(config: &Config, places: &Places, build: Build) -> Vec<Problem> {
    let mut report = Report {
        places,
        problems: Vec::new(),
    };
    missing_features(config, build, &mut report);
    server(config, &mut report);
    backends(config, &mut report);
    pools(config, &mut report);
    if config.dynamo.enabled {
        discovery(config, &mut report);
        load(config, &mut report);
        kv(config, &mut report);
    }
    event_bus(config, &mut report);
    report.problems
}

fn missing_features(config: &Config, build: Build, report: &mut Report<'_>) {
    let dynamo = &config.dynamo;
    if !dynamo.enabled {
        return;
    }
    if !build.dynamo {
        report.add(
            "dynamo.enabled",
            "this build has no Dynamo support (feature dynamo); discovery stays off",
        );
        return;
    }
    let source = dynamo.discovery.source;
    let kubernetes = matches!(
        source,
        DiscoverySource::Kubernetes | DiscoverySource::KubernetesPods
    );
    if kubernetes && !build.kubernetes {
        report.add(
            "dynamo.discovery.source",
            format!(
                "this build cannot read the source {}, so it finds no workers",
                source.as_str()
            ),
        );
    }
    if dynamo.kv.enabled && !build.dynamo_kv {
        report.add(
            "dynamo.kv.enabled",
            "this build cannot choose by cached prefixes (feature dynamo-kv); load decides",
        );
    }
    if dynamo.event_bus.enabled && !build.dynamo_event_bus {
        report.add(
            "dynamo.event_bus.enabled",
            "this build has no event bus (feature dynamo-event-bus); nothing listens",
        );
    }
    if dynamo.load.transport == Transport::Broker && !build.dynamo_event_bus {
        report.add(
            "dynamo.load.transport",
            "this build has no event bus (feature dynamo-event-bus); subscriptions stay pending, nothing connects directly",
        );
    }
}

fn server(config: &Config, report: &mut Report<'_>) {
    if !config.admin.bind_address.is_local() {
        report.add(
            "admin.bind_address",
            "the admin listener speaks plain HTTP: its token can be read on the way; keep it on a network you trust",
        );
    }
    if config
        .admin
        .token
        .as_ref()
        .is_some_and(|token| token.expose().len() < SHORT_TOKEN_BYTES)
    {
        report.add(
            "admin.token",
            format!("a token shorter than {SHORT_TOKEN_BYTES} characters can be guessed"),
        );
    }
}

fn backends(config: &Config, report: &mut Report<'_>) {
    for (index, backend) in config.backends.iter().enumerate() {
        let path = format!("backends[{index}]");
        match backend.role {
            BackendRole::Prefill | BackendRole::Decode => report.add(
                &format!("{path}.role"),
                "this router pairs the workers of a Dynamo fleet, not backends: one of this role gets no requests",
            ),
            BackendRole::Unified => {}
        }
        if backend.api_key.is_some() && plain_text(&backend.url) {
            report.add_for(
                &format!("{path}.api_key"),
                &[&format!("{path}.url")],
                "the URL is plain http://, so the key can be read on the way; use https://",
            );
        }
    }
    let others = config.backends.iter().any(|backend| {
        backend.enabled
            && !backend.internal
            && !config
                .shim_pools()
                .iter()
                .any(|(_, pool)| pool.contains(&backend.name))
    });
    if config.disaggregated() && config.disaggregated_serving.fallback_to_unified && !others {
        report.add(
            "disaggregated_serving.fallback_to_unified",
            "there is no backend to fall back to: every enabled one is a shim replica, and those refuse unpinned requests",
        );
    }
}

/// Whether a URL leads off this machine without TLS.
fn plain_text(url: &BackendUrl) -> bool {
    match url {
        BackendUrl::Tcp {
            scheme: Scheme::Http,
            host,
            ..
        } => !is_loopback(host),
        BackendUrl::Tcp {
            scheme: Scheme::Https,
            ..
        }
        | BackendUrl::Unix(_) => false,
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn pools(config: &Config, report: &mut Report<'_>) {
    let shim = &config.dynamo.shim;
    let path = if shim.pools.is_empty() {
        "dynamo.shim.backends"
    } else {
        "dynamo.shim.pools"
    };
    if !shim.is_configured() {
        if config.dynamo.enabled {
            report.add(
                "dynamo.shim",
                "without shim replicas nothing is pinned: workers are found and shown only",
            );
        } else if config.disaggregated_serving.enabled == Some(true) {
            report.add(
                "disaggregated_serving.enabled",
                "without shim replicas (dynamo.shim) nothing is pinned",
            );
        }
        return;
    }
    if !config.dynamo.enabled {
        report.add(path, "dynamo.enabled is off, so these replicas get no requests");
    } else if !config.disaggregated() {
        report.add(
            path,
            "disaggregated_serving.enabled is off, so nothing is pinned and these replicas get no requests",
        );
    }
    let listed = shim
        .backends
        .iter()
        .enumerate()
        .map(|(index, name)| (format!("dynamo.shim.backends[{index}]"), name));
    let pooled = shim.pools.iter().enumerate().flat_map(|(pool, entry)| {
        let names = entry.backends.iter().enumerate();
        names.map(move |(index, name)| (format!("dynamo.shim.pools[{pool}].backends[{index}]"), name))
    });
    for (path, name) in listed.chain(pooled) {
        let Some(backend) = config.backend(name) else {
            continue;
        };
        if !backend.enabled {
            report.add(
                &path,
                format!("the backend \"{name}\" is not enabled, so it gets no requests"),
            );
        } else if backend.internal {
            report.add(
                &path,
                format!("the backend \"{name}\" is internal: clients are not offered what it serves"),
            );
        }
    }
}

fn discovery(config: &Config, report: &mut Report<'_>) {
    let discovery = &config.dynamo.discovery;
    match discovery.source {
        DiscoverySource::Etcd => {
            let etcd = &discovery.etcd;
            if etcd.auth.is_some() && !etcd.uses_tls() {
                report.add_for(
                    "dynamo.discovery.etcd.auth",
                    &[
                        "dynamo.discovery.source",
                        "dynamo.discovery.etcd.endpoints",
                        "dynamo.discovery.etcd.tls",
                    ],
                    "without TLS the password and the session token can be read on the way; use https:// endpoints",
                );
            }
            if config.dynamo.load.transport == Transport::Direct {
                for (index, endpoint) in etcd
                    .endpoints
                    .iter()
                    .enumerate()
                    .filter(|(_, e)| looks_external(&e.host))
                {
                    report.add(
                        &format!("dynamo.discovery.etcd.endpoints[{index}]"),
                        format!(
                            "\"{}\" looks as if it were outside of the fleet's network, where workers cannot be connected to; \
                             if so, set dynamo.load.transport: broker",
                            endpoint.host
                        ),
                    );
                }
            }
        }
        DiscoverySource::Kubernetes => {
            for (key, set) in [
                ("model", discovery.kubernetes.model.is_some()),
                ("models", !discovery.kubernetes.models.is_empty()),
            ] {
                if set {
                    report.add(
                        &format!("dynamo.discovery.kubernetes.{key}"),
                        "ignored by source kubernetes: the workers' own cards name their models",
                    );
                }
            }
        }
        DiscoverySource::KubernetesPods => report.add(
            "dynamo.discovery.source",
            "pods carry neither load nor capacity: workers are picked in turn; source kubernetes has both",
        ),
        // The controllers' own source was advised on where the `RouterConfig` was written.
        DiscoverySource::File | DiscoverySource::Controller => {}
    }
}

/// A host that can be reached from anywhere, by its looks: a public address or a name under a public domain.
fn looks_external(host: &str) -> bool {
    const INSIDE: [&str; 9] = [
        ".svc",
        ".cluster.local",
        ".local",
        ".internal",
        ".lan",
        ".home.arpa",
        ".localhost",
        ".intranet",
        ".corp",
    ];
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => {
            let [first, second, ..] = ip.octets();
            let shared = first == 100 && (64..128).contains(&second);
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || shared)
        }
        Ok(IpAddr::V6(ip)) => {
            !(ip.is_loopback() || ip.is_unspecified() || ip.is_unique_local() || ip.is_unicast_link_local())
        }
        Err(_) => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            host.contains('.')
                && !INSIDE.iter().any(|suffix| host.ends_with(suffix))
                && !host.contains(".svc.")
        }
    }
}

fn load(config: &Config, report: &mut Report<'_>) {
    let load = &config.dynamo.load;
    match load.transport {
        Transport::Direct => {
            // A file store is written on this machine, and pods have no publishers.
            let open = match config.dynamo.discovery.source {
                DiscoverySource::Etcd | DiscoverySource::Kubernetes => load.direct_allow_cidrs.is_empty(),
                DiscoverySource::Controller => {
                    let upstream = config
                        .controller
                        .as_ref()
                        .and_then(|controller| controller.upstream);
                    load.direct_allow_cidrs.is_empty() && upstream != Some(Upstream::KubernetesPods)
                }
                DiscoverySource::File | DiscoverySource::KubernetesPods => false,
            };
            if open {
                report.add(
                    "dynamo.load.direct_allow_cidrs",
                    "the router connects wherever the registry points; list the networks that workers are in",
                );
            }
        }
        Transport::Broker if !config.dynamo.event_bus.enabled => {
            report.add(
                "dynamo.load.transport",
                "brokers connect to dynamo.event_bus, which is off; subscriptions stay pending",
            );
        }
        Transport::Broker => {}
    }
}

fn kv(config: &Config, report: &mut Report<'_>) {
    let kv = &config.dynamo.kv;
    if !kv.enabled {
        return;
    }
    if kv.pinned_artifacts.is_empty() {
        report.add(
            "dynamo.kv.pinned_artifacts",
            "nothing is pinned, so no tokenizer is loaded and load decides; the log names the checksums to review",
        );
    }
    if kv.allow_hf_artifacts {
        report.add(
            "dynamo.kv.allow_hf_artifacts",
            "pinned artifacts are fetched from the public Hugging Face Hub",
        );
    }
    let limits = &kv.limits;
    if !config.dynamo.load.zmq_broker.xpub_endpoints.is_empty()
        && limits.max_cursors_per_subscription < limits.max_owners_per_node
    {
        report.add(
            "dynamo.kv.limits.max_cursors_per_subscription",
            "brokers may relay all ranks in one subscription: with fewer cursors than max_owners_per_node some stay unknown",
        );
    }
    if kv.conditional_disaggregation.enabled {
        report.add(
            "dynamo.kv.conditional_disaggregation.enabled",
            "direct-mode frontends refuse a request without a prefill worker while one is registered: such requests end in 503",
        );
    }
}

fn event_bus(config: &Config, report: &mut Report<'_>) {
    let bus = &config.dynamo.event_bus;
    if !bus.enabled {
        return;
    }
    if bus.brokers.is_empty() {
        report.add("dynamo.event_bus.brokers", "nobody may connect; add the brokers");
    }
    let configured = config.dynamo.discovery.namespaces();
    for (index, broker) in bus.brokers.iter().enumerate() {
        let path = format!("dynamo.event_bus.brokers[{index}]");
        if broker.role == BusRole::Broker && broker.namespaces.is_empty() {
            report.add(
                &path,
                format!(
                    "\"{}\" may speak for every Dynamo namespace; list its own in namespaces",
                    broker.id
                ),
            );
        }
        for (nth, name) in broker.namespaces.iter().enumerate() {
            if !configured.contains(&name.as_str()) {
                report.add(
                    &format!("{path}.namespaces[{nth}]"),
                    format!("\"{name}\" is none of the configured Dynamo namespaces"),
                );
            }
        }
        for (nth, name) in broker.backends.iter().enumerate() {
            if config.backend(name).is_none() {
                report.add(
                    &format!("{path}.backends[{nth}]"),
                    format!("there is no backend named \"{name}\""),
                );
            }
        }
    }
}
