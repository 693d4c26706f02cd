//! A build without the feature `dynamo-kv`: workers are chosen by load.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use continuum_config::Config;
use continuum_fleet::{ids::ModelName, view::FleetView};
use continuum_routing::picker::{Chosen, Pick, kv::Prompt};
use continuum_runtime::{cell::Cell, tasks::Spawner};
use prometheus::Registry;

use crate::{app::Error, fleet::Fleet, in_use::Hold, ingress::routes::Route, live::Live};

/// Nothing.
pub struct Prompts;

/// Never there.
#[derive(Debug)]
pub(crate) struct Known(Infallible);

/// Why load alone decides on a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// It is not built in.
    Off,
}

impl Unknown {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
        }
    }
}

impl Prompts {
    /// Starts nothing.
    ///
    /// # Errors
    /// Never.
    pub fn start(
        _spawner: &Spawner,
        _view: Arc<Cell<FleetView>>,
        _config: &Config,
        _registry: &Registry,
    ) -> Result<Self, Error> {
        Ok(Self)
    }

    /// Does nothing.
    pub fn reload(&self, _config: &Config) {}

    /// Nothing is known.
    #[expect(
        clippy::unused_async,
        reason = "with the feature there is something to wait for"
    )]
    pub(crate) async fn known(
        &self,
        _fleet: &Fleet,
        _live: &Live,
        _route: Route,
        _model: &ModelName,
        _body: &Bytes,
    ) -> Result<Known, Unknown> {
        Err(Unknown::Off)
    }

    pub(crate) fn count_unknown(&self, _why: Unknown) {}

    pub(crate) fn count(&self, _pick: &Pick) {}
}

impl Known {
    pub(crate) fn prompt(&self) -> Prompt<'_> {
        match self.0 {}
    }

    pub(crate) fn length(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn tokens(&self) -> Option<&[u32]> {
        match self.0 {}
    }

    pub(crate) fn enter(&self, _chosen: &Chosen) -> Option<Hold> {
        match self.0 {}
    }
}
