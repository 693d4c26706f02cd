//! Counts a request in from its head and out at its end, whatever the end is.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use http::StatusCode;
use tokio::time::Instant;

use super::fleet::{self, Pin};
use crate::{
    app::App,
    dispatch::relay::{End, Hooks},
    error::{Error, Phase},
    ingress::routes::Route,
    metrics::{Path, StatusClass},
};

/// Requests in flight.
#[derive(Debug, Default)]
pub struct InFlight(AtomicU32);

impl InFlight {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// A request that has no answer yet. Dropped without one, the client has left.
pub(super) struct Guard {
    open: Option<Open>,
}

struct Open {
    app: Arc<App>,
    route: Route,
    started: Instant,
    /// Workers of the fleet were considered for it.
    considered: bool,
}

impl Guard {
    /// Counts the request in.
    pub(super) fn enter(app: &Arc<App>, route: Route, started: Instant) -> Result<Self, Error> {
        let limit = app.live().config.server.max_in_flight;
        if app.in_flight.0.fetch_add(1, Relaxed) >= limit {
            app.in_flight.0.fetch_sub(1, Relaxed);
            return Err(turned_away(app, route, started, Error::Overloaded));
        }
        app.requests.begin(route);
        Ok(Self {
            open: Some(Open {
                app: app.clone(),
                route,
                started,
                considered: false,
            }),
        })
    }

    /// Workers of the fleet are considered for the request.
    #[cfg(feature = "dynamo")]
    pub(super) fn considered(&mut self) {
        if let Some(open) = &mut self.open {
            open.considered = true;
        }
    }

    pub(super) fn started(&self) -> Instant {
        self.open.as_ref().map_or_else(Instant::now, |open| open.started)
    }

    /// The request was answered without a backend.
    pub(super) fn refused(mut self, status: StatusCode) {
        if let Some(open) = self.open.take() {
            open.end(Path::None, StatusClass::of(status));
        }
    }

    /// The answer of a backend is on its way: its end is the end of the request.
    pub(super) fn relayed(mut self, status: StatusCode, path: Path, pin: Option<Pin>) -> Ending {
        Ending {
            open: self.open.take(),
            status,
            path,
            pin,
        }
    }
}

/// Who is not let in is a request that has ended, too: a full router must show in its counters.
fn turned_away(app: &App, route: Route, started: Instant, error: Error) -> Error {
    app.requests.begin(route);
    let class = StatusClass::of(error.answer().status);
    app.requests.end(route, Path::None, class, started.elapsed());
    error
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.end(Path::None, StatusClass::ClientClosed);
        }
    }
}

impl Open {
    fn end(self, path: Path, class: StatusClass) {
        self.app.in_flight.0.fetch_sub(1, Relaxed);
        if self.considered {
            self.app.requests.considered(path);
        }
        self.app
            .requests
            .end(self.route, path, class, self.started.elapsed());
    }
}

/// Waits for the end of a relayed answer.
pub(super) struct Ending {
    open: Option<Open>,
    status: StatusCode,
    path: Path,
    pin: Option<Pin>,
}

impl Hooks for Ending {
    fn first_byte(&mut self) {
        let Some(open) = &self.open else { return };
        open.app
            .requests
            .first_byte(open.route, self.path, open.started.elapsed());
        // A refusal says nothing about the prompt.
        if let Some(pin) = self.pin.as_ref().filter(|_| self.status.is_success()) {
            fleet::first_byte(&open.app, pin);
        }
    }

    fn end(&mut self, end: End) {
        let pinned = self.pin.take().is_some();
        if let Some(open) = self.open.take() {
            if pinned && matches!(end, End::ErrorEvent | End::Broken | End::TimedOut(_)) {
                open.app.backends.metrics().failed(Phase::Decode);
            }
            open.end(self.path, StatusClass::of_relayed(self.status, end));
        }
    }
}
