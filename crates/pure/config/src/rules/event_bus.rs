//! The event bus: its port, its certificate, who may connect.

use std::collections::BTreeMap;

use super::{Report, namespace_problem};
use crate::{
    limits::MIN_STREAM_BUFFER_BYTES,
    model::{BusBroker, BusRole, Config},
    value::BindAddress,
};

const BUS: &str = "dynamo.event_bus";

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let bus = &config.dynamo.event_bus;
    ports(config, report);
    if bus.enabled && bus.tls.is_none() {
        report.add(
            &format!("{BUS}.tls"),
            "the event bus speaks TLS only; set tls.cert and tls.key",
        );
    }
    let least = u64::from(bus.max_streams_per_session) * MIN_STREAM_BUFFER_BYTES;
    if bus.max_session_buffer_bytes < least {
        report.add(
            &format!("{BUS}.max_session_buffer_bytes"),
            format!(
                "{} streams need at least {} (64KiB each); raise this or lower max_streams_per_session",
                bus.max_streams_per_session,
                crate::value::size::text(least)
            ),
        );
    }
    if bus.heartbeat_interval >= bus.idle_timeout {
        report.add(
            &format!("{BUS}.heartbeat_interval"),
            "must be less than idle_timeout, or every session ends as idle",
        );
    }
    brokers(config, report);
}

/// A port of its own: the bus has other certificates and other clients than the server.
fn ports(config: &Config, report: &mut Report<'_>) {
    let bus = &config.dynamo.event_bus;
    let port = bus.listen.port();
    if port == 0 || !bus.enabled {
        return;
    }
    let taken =
        |address: &BindAddress| matches!(address, BindAddress::Tcp(address) if address.port() == port);
    let path = format!("{BUS}.listen");
    if config.server.bind_address.0.iter().any(taken) {
        report.add(&path, "server.bind_address has this port; choose another");
    } else if taken(&config.admin.bind_address) {
        report.add(&path, "admin.bind_address has this port; choose another");
    } else if config.telemetry.metrics_bind_address.as_ref().is_some_and(taken) {
        report.add(
            &path,
            "telemetry.metrics_bind_address has this port; choose another",
        );
    }
}

fn brokers(config: &Config, report: &mut Report<'_>) {
    let bus = &config.dynamo.event_bus;
    let path = format!("{BUS}.brokers");
    report.unique(
        &path,
        ".id",
        bus.brokers.iter().map(|broker| broker.id.as_str()),
        "broker id",
    );
    let mut hashes: BTreeMap<&[u8; 32], &str> = BTreeMap::new();
    let certificates = bus.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    for (index, broker) in bus.brokers.iter().enumerate() {
        let path = format!("{path}[{index}]");
        one(&path, broker, certificates, report);
        if let Some(hash) = &broker.token_hash
            && let Some(other) = hashes.insert(hash.bytes(), &broker.id)
        {
            report.add(
                &format!("{path}.token_hash"),
                format!("\"{other}\" has the same token; each needs its own"),
            );
        }
    }
}

fn one(path: &str, broker: &BusBroker, certificates: bool, report: &mut Report<'_>) {
    if !broker
        .id
        .bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
    {
        report.add(
            &format!("{path}.id"),
            "a broker's id holds visible ASCII characters without spaces, quotes and \"\\\"",
        );
    }
    if broker.token_hash.is_none() && !report.places.in_doubt(&format!("{path}.token_hash")) {
        if !certificates {
            report.add(
                path,
                "set token_hash (or event_bus.tls.client_ca, to know it by its certificate)",
            );
        } else if !is_dns_name(&broker.id) {
            report.add(
                &format!("{path}.id"),
                "without token_hash the id is the DNS name in its certificate: lower case, no wildcard",
            );
        }
    }
    match broker.role {
        BusRole::Broker if !broker.backends.is_empty() => {
            report.add(
                &format!("{path}.backends"),
                "backends are for role kv_listener; a broker has namespaces",
            );
        }
        BusRole::KvListener if !broker.namespaces.is_empty() => {
            report.add(
                &format!("{path}.namespaces"),
                "namespaces are for role broker; a kv_listener has backends",
            );
        }
        BusRole::KvListener if broker.backends.is_empty() => {
            report.add(
                &format!("{path}.backends"),
                "name at least one backend whose events it may bring",
            );
        }
        BusRole::Broker | BusRole::KvListener => {}
    }
    report.unique(
        &format!("{path}.namespaces"),
        "",
        broker.namespaces.iter().map(String::as_str),
        "namespace",
    );
    report.unique(
        &format!("{path}.backends"),
        "",
        broker.backends.iter().map(String::as_str),
        "backend",
    );
    for (index, name) in broker.namespaces.iter().enumerate() {
        if let Some(problem) = namespace_problem(name) {
            report.add(&format!("{path}.namespaces[{index}]"), problem);
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}
