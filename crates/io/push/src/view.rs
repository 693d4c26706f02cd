//! What the followed controller has told.

use std::sync::Arc;

use continuum_fleet::view::FleetView;
use continuum_messages::{ConfigId, ViewId};

use crate::report::Source;

/// The pushed view, and how far it can be relied on.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// Moves on with each change of the content in this process; 0 before there is a view.
    pub number: u64,
    /// What names the view.
    pub id: Option<ViewId>,
    /// The view.
    pub view: FleetView,
    /// What the view is of, as the controller told it; empty for one that does not tell.
    pub origins: Arc<[String]>,
    /// The view was kept by an earlier process, and no controller has confirmed it.
    pub kept: bool,
    /// How the controller's source fares; `None` before it was told.
    pub source: Option<Source>,
    /// A controller is followed.
    pub followed: bool,
}

impl PartialEq for Pushed {
    /// The number stands for the content.
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.number, of.id, of.kept, of.followed);
        parts(self) == parts(other) && self.source == other.source && self.origins == other.origins
    }
}

/// A configuration that a controller sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// What names it.
    pub id: ConfigId,
    /// The UID of the `RouterConfig` that it was made from, if it was told.
    pub uid: Option<String>,
    /// YAML, as the file has it.
    pub text: String,
}
