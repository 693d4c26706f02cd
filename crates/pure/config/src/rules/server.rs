//! Listeners and their tokens.

use std::collections::BTreeMap;

use super::{Report, is_token};
use crate::{
    model::Config,
    value::{BindAddress, size},
};

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    listeners(config, report);
    bodies(config, report);
    admin(config, report);
}

/// A budget that the largest body does not fit into would refuse it for ever, and say that a retry may help.
fn bodies(config: &Config, report: &mut Report<'_>) {
    let server = &config.server;
    let (least, found) = (server.least_body_budget(), server.bodies());
    if found < least && !report.places.in_doubt("server.body_limit") {
        report.add(
            "server.body_budget",
            format!(
                "must be at least four times server.body_limit ({}), that is {}; found {}",
                size::text(server.body_limit),
                size::text(least),
                size::text(found)
            ),
        );
    }
}

/// No two listeners on one address. A wildcard takes the port on every address of its family or, as the
/// system may have it, of both.
fn listeners(config: &Config, report: &mut Report<'_>) {
    let mut taken: BTreeMap<String, Vec<(&BindAddress, &str)>> = BTreeMap::new();
    let several = config.server.bind_address.0.len() > 1;
    let server = config
        .server
        .bind_address
        .0
        .iter()
        .enumerate()
        .map(|(index, address)| {
            let path = if several {
                format!("server.bind_address[{index}]")
            } else {
                "server.bind_address".to_owned()
            };
            (path, address, "the server")
        });
    let admin = [(
        "admin.bind_address".to_owned(),
        &config.admin.bind_address,
        "the admin listener",
    )];
    let metrics = config.telemetry.metrics_bind_address.iter().map(|address| {
        (
            "telemetry.metrics_bind_address".to_owned(),
            address,
            "the metrics listener",
        )
    });
    for (path, address, who) in server.chain(admin).chain(metrics) {
        let key = match address {
            BindAddress::Tcp(address) if address.port() == 0 => continue,
            BindAddress::Tcp(address) => address.port().to_string(),
            BindAddress::Unix(path) => path.display().to_string(),
        };
        let others = taken.entry(key).or_default();
        if let Some((_, other)) = others.iter().find(|(other, _)| overlap(other, address)) {
            report.add(
                &path,
                format!("{other} listens on this address already; choose another port"),
            );
        }
        others.push((address, who));
    }
}

fn overlap(one: &BindAddress, other: &BindAddress) -> bool {
    match (one, other) {
        (BindAddress::Tcp(one), BindAddress::Tcp(other)) => {
            one.ip().to_canonical() == other.ip().to_canonical()
                || one.ip().is_unspecified()
                || other.ip().is_unspecified()
        }
        (BindAddress::Unix(one), BindAddress::Unix(other)) => one == other,
        (BindAddress::Tcp(_), BindAddress::Unix(_)) | (BindAddress::Unix(_), BindAddress::Tcp(_)) => false,
    }
}

fn admin(config: &Config, report: &mut Report<'_>) {
    let admin = &config.admin;
    let protected = admin.token.is_some() || admin.token_hash.is_some();
    if !protected
        && !admin.bind_address.is_local()
        && !report.places.in_doubt("admin.token")
        && !report.places.in_doubt("admin.token_hash")
    {
        report.add(
            "admin.bind_address",
            "others than this machine can connect here; set admin.token (or admin.token_hash), or listen on 127.0.0.1",
        );
    }
    if admin.token.is_some() && admin.token_hash.is_some() {
        report.add(
            "admin.token_hash",
            "set admin.token or admin.token_hash, not both",
        );
    }
    if admin
        .token
        .as_ref()
        .is_some_and(|token| !is_token(token.expose()))
    {
        report.add(
            "admin.token",
            "a token is sent in a header: use visible ASCII characters without spaces",
        );
    }
}
