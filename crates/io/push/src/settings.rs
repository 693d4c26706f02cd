//! What the configuration asks of the sessions.

use std::path::PathBuf;

use continuum_config::{
    Config,
    model::{DiscoverySource, Upstream},
};

/// How the controllers are reached, and what is wanted of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name that their certificates carry, and behind which their addresses are.
    pub host: String,
    /// Their port.
    pub port: u16,
    /// Certificates to trust.
    pub ca_file: PathBuf,
    /// The token to show.
    pub token_file: PathBuf,
    /// Views are wanted: `source: controller`.
    pub views: bool,
    /// Where the last view is kept.
    pub state_dir: Option<PathBuf>,
    /// What a view must be of to be this router's, one line for each Dynamo namespace and in order: see
    /// `continuum_config::model::Discovery::origins`.
    pub origins: Vec<String>,
}

impl Settings {
    /// `None` for a router that no operator started.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        let controller = config.controller.as_ref()?;
        let dynamo = &config.dynamo;
        let discovery = &dynamo.discovery;
        let upstream = controller.upstream.unwrap_or(Upstream::Kubernetes);
        Some(Self {
            host: controller.endpoint.host.to_string(),
            port: controller.endpoint.port,
            ca_file: controller.ca_file.clone(),
            token_file: controller.token_file.clone(),
            views: dynamo.enabled && discovery.source == DiscoverySource::Controller,
            state_dir: dynamo.state_dir.clone(),
            origins: discovery.origins(upstream.source()).into_values().collect(),
        })
    }

    /// Whether sessions that serve one serve the other.
    pub(crate) fn same_peers(&self, other: &Self) -> bool {
        (&self.host, self.port, &self.ca_file, &self.token_file)
            == (&other.host, other.port, &other.ca_file, &other.token_file)
    }
}
