//! Sources, namespaces, back-off.

use std::collections::BTreeSet;

use continuum_fleet::{graphs::Graphs, ids::Graph};

use super::{Report, namespace_problem};
use crate::{
    limits::MAX_LABEL_BYTES,
    model::{Config, Discovery, DiscoverySource, Etcd, Kubernetes, NamespaceMatch, Upstream, WatchBackoff},
    value::Scheme,
};

const ETCD: &str = "dynamo.discovery.etcd";
const FILE: &str = "dynamo.discovery.file";
const KUBERNETES: &str = "dynamo.discovery.kubernetes";
/// The namespace that Dynamo uses when none is named.
const DEFAULT_NAMESPACE: &str = "dynamo";

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let discovery = &config.dynamo.discovery;
    let uses = |source| config.dynamo.enabled && discovery.source == source;
    etcd(&discovery.etcd, uses(DiscoverySource::Etcd), report);
    if uses(DiscoverySource::File) && discovery.file.path.is_none() {
        report.add(
            &format!("{FILE}.path"),
            "name the store's directory (the workers' DYN_FILE_KV)",
        );
    }
    kubernetes(&discovery.kubernetes, report);
    let pushed_pods = uses(DiscoverySource::Controller)
        && config
            .controller
            .as_ref()
            .is_some_and(|controller| controller.upstream == Some(Upstream::KubernetesPods));
    if uses(DiscoverySource::KubernetesPods) || pushed_pods {
        kubernetes_models(&discovery.kubernetes, report);
    }
    for (section, backoff) in [
        (ETCD, &discovery.etcd.watch_reconnect_backoff),
        (FILE, &discovery.file.watch_reconnect_backoff),
        (KUBERNETES, &discovery.kubernetes.watch_reconnect_backoff),
    ] {
        check_backoff(section, backoff, report);
    }
    namespaces(discovery, report);
}

fn etcd(etcd: &Etcd, used: bool, report: &mut Report<'_>) {
    let endpoints = format!("{ETCD}.endpoints");
    if used && etcd.endpoints.is_empty() {
        report.add(
            &endpoints,
            "name at least one etcd endpoint, such as \"http://127.0.0.1:2379\"",
        );
    }
    let with = |scheme| {
        etcd.endpoints
            .iter()
            .position(|endpoint| endpoint.scheme == Some(scheme))
    };
    let (http, https) = (with(Scheme::Http), with(Scheme::Https));
    if http.is_some() && https.is_some() {
        report.add(
            &endpoints,
            "http:// and https:// cannot be mixed; use one scheme for all endpoints",
        );
    } else if let (Some(_), Some(index)) = (&etcd.tls, http) {
        report.add(
            &format!("{endpoints}[{index}]"),
            "plain http:// beside a tls block; use https:// (or host:port), or remove tls",
        );
    }
    if let Some(tls) = &etcd.tls {
        match (&tls.client_cert, &tls.client_key) {
            (Some(_), None) => report.add(
                &format!("{ETCD}.tls.client_cert"),
                "client_cert and client_key go together; add client_key",
            ),
            (None, Some(_)) => report.add(
                &format!("{ETCD}.tls.client_key"),
                "client_cert and client_key go together; add client_cert",
            ),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    if let Some(auth) = &etcd.auth
        && auth.username.chars().any(char::is_control)
    {
        report.add(
            &format!("{ETCD}.auth.username"),
            "a user name cannot contain control characters",
        );
    }
}

/// The configured names of every source, and their overlaps in the one that is in use.
fn namespaces(discovery: &Discovery, report: &mut Report<'_>) {
    let kubernetes = &discovery.kubernetes;
    for (source, path, one, many) in [
        (
            DiscoverySource::Etcd,
            format!("{ETCD}.namespace"),
            &discovery.etcd.namespace,
            &discovery.etcd.namespaces,
        ),
        (
            DiscoverySource::File,
            format!("{FILE}.namespace"),
            &discovery.file.namespace,
            &discovery.file.namespaces,
        ),
        (
            DiscoverySource::Kubernetes,
            format!("{KUBERNETES}.dynamo_namespace"),
            &kubernetes.dynamo_namespace,
            &kubernetes.dynamo_namespaces,
        ),
    ] {
        let list = format!("{path}s");
        if !many.is_empty() && one != DEFAULT_NAMESPACE {
            let key = path.rsplit('.').next().unwrap_or_default();
            report.add(&path, format!("set {key} or {key}s, not both"));
        }
        let label = source == DiscoverySource::Kubernetes;
        for (name, path) in std::iter::once((one, path.clone())).chain(
            many.iter()
                .enumerate()
                .map(|(index, name)| (name, format!("{list}[{index}]"))),
        ) {
            if let Some(problem) = namespace_problem(name) {
                report.add(&path, problem);
            } else if label && !is_label_value(name) {
                report.add(&path, LABEL_VALUE);
            }
        }
        report.unique(&list, "", many.iter().map(String::as_str), "namespace");
        let kubernetes_like = matches!(
            discovery.source,
            DiscoverySource::KubernetesPods | DiscoverySource::Controller
        );
        // Pods carry the base name in their label: they are compared as they are.
        if discovery.source == source {
            overlaps(&list, many, discovery.namespace_match, report);
        } else if label && kubernetes_like {
            overlaps(&list, many, NamespaceMatch::Generation, report);
        }
    }
}

/// Two names of which one would take the other's workers.
fn overlaps(list: &str, names: &[String], by: NamespaceMatch, report: &mut Report<'_>) {
    for (index, name) in names.iter().enumerate() {
        let Some(wide) = names.iter().find(|wide| *wide != name && takes(by, wide, name)) else {
            continue;
        };
        let message = match by {
            NamespaceMatch::Generation => {
                format!("this is a generation of \"{wide}\", which is configured as well; remove one of them")
            }
            NamespaceMatch::Prefix => format!(
                "this begins with \"{wide}\", which takes it under namespace_match: prefix; remove one of them"
            ),
            NamespaceMatch::Exact => continue,
        };
        report.add(&format!("{list}[{index}]"), message);
    }
}

/// Whether a worker in namespace `name` belongs to the configured name `wide`, by the rule that the fleet's
/// reducer follows.
fn takes(by: NamespaceMatch, wide: &str, name: &str) -> bool {
    Graphs::new([Graph::from(wide)], by.of_fleet())
        .graph_of(name)
        .is_some()
}

fn kubernetes(kubernetes: &Kubernetes, report: &mut Report<'_>) {
    if !is_dns_label(&kubernetes.namespace) {
        report.add(
            &format!("{KUBERNETES}.namespace"),
            "a Kubernetes namespace is 1 to 63 lower-case letters, digits and \"-\", with a letter or digit at both ends",
        );
    }
    for (index, model) in kubernetes.models.iter().enumerate() {
        let path = format!("{KUBERNETES}.models[{index}]");
        if !is_label_value(&model.component) {
            report.add(&format!("{path}.component"), LABEL_VALUE);
        }
        if model
            .dynamo_namespace
            .as_deref()
            .is_some_and(|name| !is_label_value(name))
        {
            report.add(&format!("{path}.dynamo_namespace"), LABEL_VALUE);
        }
    }
}

/// What `kubernetes_pods` needs beside a valid form: pods carry no model card.
fn kubernetes_models(kubernetes: &Kubernetes, report: &mut Report<'_>) {
    match (&kubernetes.model, kubernetes.models.as_slice()) {
        (None, []) => report.add(
            &format!("{KUBERNETES}.model"),
            "pods do not say what they serve: set model, or models with one entry for each component",
        ),
        (Some(_), [_, ..]) => report.add(&format!("{KUBERNETES}.models"), "set model or models, not both"),
        (Some(_), []) | (None, [_, ..]) => {}
    }
    let configured: &[String] = if kubernetes.dynamo_namespaces.is_empty() {
        std::slice::from_ref(&kubernetes.dynamo_namespace)
    } else {
        &kubernetes.dynamo_namespaces
    };
    let mut seen = BTreeSet::new();
    for (index, model) in kubernetes.models.iter().enumerate() {
        let path = format!("{KUBERNETES}.models[{index}]");
        let namespace = match (&model.dynamo_namespace, configured) {
            (Some(name), _) if !configured.contains(name) => {
                report.add(
                    &format!("{path}.dynamo_namespace"),
                    "this is none of the configured Dynamo namespaces",
                );
                continue;
            }
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, _) => {
                report.add(
                    &path,
                    "add dynamo_namespace: there are several, and components are per namespace",
                );
                continue;
            }
        };
        if !seen.insert((namespace, &model.component)) {
            report.add(
                &format!("{path}.component"),
                format!("the component \"{}\" stands here twice", model.component),
            );
        }
    }
}

fn check_backoff(section: &str, backoff: &WatchBackoff, report: &mut Report<'_>) {
    if backoff.max < backoff.initial {
        report.add(
            &format!("{section}.watch_reconnect_backoff.max"),
            "max must be at least initial",
        );
    }
}

const LABEL_VALUE: &str =
    "a label value is 1 to 63 letters, digits, \"-\", \"_\" and \".\", with a letter or digit at both ends";

/// DNS-1123.
fn is_dns_label(text: &str) -> bool {
    is_label(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), b"-")
}

fn is_label_value(text: &str) -> bool {
    is_label(text, |b| b.is_ascii_alphanumeric(), b"-_.")
}

fn is_label(text: &str, at_ends: impl Fn(u8) -> bool, between: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_BYTES
        && bytes.first().is_some_and(|b| at_ends(*b))
        && bytes.last().is_some_and(|b| at_ends(*b))
        && bytes.iter().all(|b| at_ends(*b) || between.contains(b))
}
