//! The controllers: how they are reached, and what a pushed view needs.

use super::Report;
use crate::{
    model::{Config, DiscoverySource},
    value::Scheme,
};

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let pushed = config.dynamo.enabled && config.dynamo.discovery.source == DiscoverySource::Controller;
    let Some(controller) = &config.controller else {
        if pushed {
            report.add(
                "dynamo.discovery.source",
                "source controller is set by the operator, together with the section controller; outside of it choose \
                 etcd, file, kubernetes or kubernetes_pods",
            );
        }
        return;
    };
    if controller.endpoint.scheme != Some(Scheme::Https) {
        report.add(
            "controller.endpoint",
            "controllers speak TLS only: write https://host:port",
        );
    }
    if pushed && controller.upstream.is_none() {
        report.add(
            "controller.upstream",
            "source controller needs it: write kubernetes or kubernetes_pods",
        );
    }
}
