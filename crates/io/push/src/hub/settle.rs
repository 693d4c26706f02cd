//! Whom to follow after a change, and what everybody else is to know of it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Alone, Hub};
use crate::{limits::ALONE, peers, session::Orders, status::SessionState};

impl Hub {
    /// After everything that may have changed whom to follow.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        let known = self.known();
        let chosen = peers::choose(&known, self.followed, self.wants_views(), now);
        if chosen != self.followed {
            let before = self.followed.take();
            self.order(before, Orders::default());
            self.followed = chosen;
            self.behind = None;
            self.origins_told = false;
            self.assembler.interrupt();
            self.asking.asked();
            self.ask(false);
            let name = chosen.and_then(|address| known.get(&address));
            match name {
                Some(peer) => tracing::info!(replica = peer.replica, "a controller is followed"),
                None => tracing::debug!("no controller is followed"),
            }
        }
        match (self.followed, self.alone) {
            (Some(_), Alone::No) | (None, Alone::Said) => {}
            (Some(_), Alone::Since(_)) => self.alone = Alone::No,
            (Some(_), Alone::Said) => {
                self.alone = Alone::No;
                tracing::info!("a controller is reached again");
            }
            (None, Alone::No) => self.alone = Alone::Since(now),
            (None, Alone::Since(since)) if self.settings.is_some() && now - since >= ALONE => {
                self.alone = Alone::Said;
                tracing::warn!("no controller is reached; the last view and configuration stay in force");
            }
            (None, Alone::Since(_)) => {}
        }
        if self.out.pushed.read().followed != self.followed.is_some() {
            let followed = self.followed.is_some();
            self.out.pushed.update(|pushed| pushed.followed = followed);
        }
        let rows = peers::rows(&known, self.followed, now);
        for state in SessionState::ALL {
            let count = rows.iter().filter(|row| row.state == state).count();
            self.out.metrics.sessions(state, count);
        }
        self.out.metrics.followed.set(i64::from(self.followed.is_some()));
        let (age_ms, _) = self.shared.age();
        if age_ms != u64::MAX {
            self.out
                .metrics
                .view_age
                .set(Duration::from_millis(age_ms).as_secs_f64());
        }
        let shown = self.out.status.read();
        let outdated = shown.sessions != rows || (shown.last_error.is_some() && self.followed.is_some());
        drop(shown);
        if outdated {
            let followed = self.followed.is_some();
            self.out.status.update(|status| {
                status.sessions = rows;
                if followed {
                    status.unreachable_since = None;
                    status.last_error = None;
                } else if status.unreachable_since.is_none() {
                    status.unreachable_since = Some(Timestamp::now());
                }
            });
        }
    }
}
