//! `POST /admin/config/reload`, and how a reload is shown.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;

use super::{moment, refused, with_status};
use crate::{
    error::Error,
    proxy::Body,
    reload::{Outcome, Reloader, Report},
};

/// A reload, as operators see it.
#[derive(Serialize)]
pub(super) struct Reload {
    result: &'static str,
    at: String,
    problems: Vec<String>,
    changed: Vec<&'static str>,
}

impl From<Report> for Reload {
    fn from(report: Report) -> Self {
        Self {
            result: report.outcome.as_str(),
            at: moment(report.at),
            problems: report.problems,
            changed: report.changed,
        }
    }
}

#[derive(Serialize)]
struct Reloaded {
    #[serde(flatten)]
    reload: Reload,
    restart_needed: Vec<&'static str>,
}

/// Reads the configuration file again and tells what came of it. A file that cannot be used is 422.
pub(super) async fn reload(reloader: &Arc<Reloader>) -> Response<Body> {
    let working = reloader.clone();
    // Files are read and certificates parsed.
    let done = tokio::task::spawn_blocking(move || (working.reload(), working.restart_needed())).await;
    let Ok((report, restart_needed)) = done else {
        return refused(&Error::Internal("a reload was lost"));
    };
    let status = match report.outcome {
        Outcome::Applied | Outcome::Unchanged => StatusCode::OK,
        Outcome::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
    };
    with_status(
        status,
        &Reloaded {
            reload: report.into(),
            restart_needed,
        },
    )
}
