//! The part of the status that is about the operator's controllers.

use continuum_push::{ConfigId, Session, ViewId};
use serde::Serialize;

use crate::admin::{Admin, moment};

/// The operator's controllers.
#[derive(Serialize)]
pub(super) struct Controllers {
    /// The one that views and configuration come from.
    followed: Option<String>,
    /// Since when none has been reached.
    unreachable_since: Option<String>,
    last_error: Option<String>,
    sessions: Vec<Row>,
    /// The newest pushed view.
    view: Option<View>,
    config: Config,
}

#[derive(Serialize)]
struct Row {
    replica: String,
    state: &'static str,
    leader: bool,
}

#[derive(Serialize)]
struct View {
    number: u64,
    digest: String,
    /// Picks are made from it.
    in_force: bool,
    /// It was kept by an earlier process and nobody has confirmed it.
    kept: bool,
}

#[derive(Serialize)]
struct Config {
    /// In force.
    generation: Option<i64>,
    /// The newest one, where it was rejected.
    refused_generation: Option<i64>,
}

impl Controllers {
    pub(super) fn of(admin: &Admin) -> Option<Self> {
        let controllers = &admin.app.controllers;
        let status = controllers.status();
        if !status.configured {
            return None;
        }
        let pushed = controllers.pushed();
        let in_force = controllers.report().view;
        let versions = admin.reloader.versions().borrow().clone();
        let generation = |id: ConfigId| id.generation;
        let followed = status.sessions.iter().find(|session| session.followed);
        Some(Self {
            followed: followed.map(|session| session.replica.clone()),
            unreachable_since: status.unreachable_since.map(moment),
            last_error: status.last_error.clone(),
            sessions: status.sessions.iter().map(Row::of).collect(),
            view: pushed.id.map(|id: ViewId| View {
                number: id.number,
                digest: id.digest.to_string(),
                in_force: in_force.is_some_and(|view| view.digest == id.digest),
                kept: pushed.kept,
            }),
            config: Config {
                generation: versions.in_force.map(generation),
                refused_generation: versions.refused.map(|(id, _)| id.generation),
            },
        })
    }
}

impl Row {
    fn of(session: &Session) -> Self {
        Self {
            replica: session.replica.clone(),
            state: session.state.as_str(),
            leader: session.leader,
        }
    }
}
