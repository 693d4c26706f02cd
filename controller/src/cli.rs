//! The command line, each flag with an environment variable beside it.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, ValueEnum};

/// Runs the operator of Continuum Router: makes routers of `RouterConfig` resources and shows them their fleets.
#[derive(Clone, Debug, Parser)]
#[command(name = "continuum-controller", version)]
pub struct Cli {
    /// Namespaces in which `RouterConfig` resources are served, or `*` for all of them; the operator's own by default
    #[arg(long, env = "CONTINUUM_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Namespaces whose fleets a `RouterConfig` of another namespace may name, or `*` for any
    #[arg(long, env = "CONTINUUM_FLEET_NAMESPACES", value_delimiter = ',')]
    pub fleet_namespaces: Vec<String>,
    /// Image of router pods, where a `RouterConfig` names none
    #[arg(long, env = "CONTINUUM_ROUTER_IMAGE")]
    pub router_image: String,
    /// Pull policy of that image: Always, IfNotPresent or Never
    #[arg(long, env = "CONTINUUM_ROUTER_IMAGE_PULL_POLICY")]
    pub router_image_pull_policy: Option<String>,
    /// Where routers connect to
    #[arg(long, env = "CONTINUUM_PUSH_ADDRESS", default_value = "0.0.0.0:9443")]
    pub push_address: SocketAddr,
    /// The same as routers see it: `https://<headless service>.<namespace>.svc:9443`
    #[arg(long, env = "CONTINUUM_PUSH_ENDPOINT")]
    pub push_endpoint: String,
    /// Probes and metrics
    #[arg(long, env = "CONTINUUM_HEALTH_ADDRESS", default_value = "0.0.0.0:8081")]
    pub health_address: SocketAddr,
    /// Secret that holds the certificate authority; it must exist and may be empty
    #[arg(
        long,
        env = "CONTINUUM_CA_SECRET",
        conflicts_with = "tls_dir",
        required_unless_present = "tls_dir"
    )]
    pub ca_secret: Option<String>,
    /// Directory with `tls.crt`, `tls.key` and `ca.crt`, for instance of cert-manager, instead of an authority of our own
    #[arg(long, env = "CONTINUUM_TLS_DIR")]
    pub tls_dir: Option<PathBuf>,
    /// The cluster's kubeconfig, for an operator that runs outside of it; inside, its ServiceAccount is used
    #[arg(long, env = "CONTINUUM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Lease that decides which replica writes
    #[arg(long, env = "CONTINUUM_LEASE", default_value = "continuum-router-controller")]
    pub lease: String,
    /// How log lines are written
    #[arg(long, env = "CONTINUUM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a list such as `info,kube=debug`
    #[arg(long, env = "CONTINUUM_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    /// Name of this pod
    #[arg(long, env = "POD_NAME")]
    pub pod_name: String,
    /// Namespace of this pod
    #[arg(long, env = "POD_NAMESPACE")]
    pub pod_namespace: String,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Some namespaces, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one.
    All,
    /// These.
    Some(Vec<String>),
}

impl Namespaces {
    /// What was written on the command line.
    #[must_use]
    pub fn of(names: &[String]) -> Self {
        if names.iter().any(|name| name == "*") {
            return Self::All;
        }
        let mut names: Vec<String> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
        names.sort();
        names.dedup();
        Self::Some(names)
    }

    /// Whether a namespace is one of them.
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.iter().any(|name| name == namespace),
        }
    }
}

impl Cli {
    /// Where `RouterConfig` resources are served.
    #[must_use]
    pub fn served(&self) -> Namespaces {
        match Namespaces::of(&self.namespaces) {
            Namespaces::Some(names) if names.is_empty() => Namespaces::Some(vec![self.pod_namespace.clone()]),
            served @ (Namespaces::All | Namespaces::Some(_)) => served,
        }
    }

    /// Foreign fleets that may be named.
    #[must_use]
    pub fn foreign_fleets(&self) -> Namespaces {
        Namespaces::of(&self.fleet_namespaces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_default_to_the_operators_own() {
        let cli = |more: &[&str]| {
            let fixed = [
                "x",
                "--router-image=i",
                "--push-endpoint=https://p.n.svc:9443",
                "--ca-secret=s",
                "--pod-name=p",
                "--pod-namespace=n",
            ];
            Cli::parse_from(fixed.iter().chain(more))
        };
        assert_eq!(cli(&[]).served(), Namespaces::Some(vec!["n".to_owned()]));
        assert_eq!(
            cli(&["--namespaces=b,a,a"]).served(),
            Namespaces::of(&["a".into(), "b".into()])
        );
        assert_eq!(cli(&["--namespaces=*"]).served(), Namespaces::All);
        assert!(!cli(&[]).foreign_fleets().contains("n"));
        assert!(cli(&["--fleet-namespaces=m"]).foreign_fleets().contains("m"));
    }
}
