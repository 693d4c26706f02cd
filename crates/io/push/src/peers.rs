//! Whom to follow: what is known of each session, and the rule that chooses one.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    limits::HEARTBEAT_TIMEOUT,
    status::{Session, SessionState},
};

/// What is known of one controller.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its name, once it has said it.
    pub(crate) replica: String,
    pub(crate) leader: bool,
    /// It has a view.
    pub(crate) has_view: bool,
    /// What the views of this session are of, as it told last.
    pub(crate) origins: Arc<[String]>,
    /// When it spoke last; `None` while the session is not up.
    pub(crate) heard: Option<Instant>,
    /// By which routers spread over controllers that are equal otherwise.
    pub(crate) tie: u32,
}

impl Peer {
    pub(crate) fn new(tie: u32) -> Self {
        Self {
            replica: String::new(),
            leader: false,
            has_view: false,
            origins: Arc::default(),
            heard: None,
            tie,
        }
    }

    fn silence(&self, now: Instant) -> Option<Duration> {
        self.heard.map(|heard| now.saturating_duration_since(heard))
    }

    pub(crate) fn state(&self, now: Instant) -> SessionState {
        match self.silence(now) {
            None => SessionState::Connecting,
            Some(silence) if silence < HEARTBEAT_TIMEOUT => SessionState::Up,
            Some(_) => SessionState::Silent,
        }
    }
}

/// Whom to follow: the present one while it speaks, else one that speaks; before all others one that has a view where
/// views are wanted. While nobody speaks the present one stays, as long as its session is up.
pub(crate) fn choose(
    peers: &BTreeMap<SocketAddr, Peer>,
    present: Option<SocketAddr>,
    views: bool,
    now: Instant,
) -> Option<SocketAddr> {
    let rank = |(address, peer): (&SocketAddr, &Peer)| {
        let speaks = peer.state(now) == SessionState::Up;
        let useful = peer.has_view || !views;
        peer.heard.map(|_up| {
            (
                speaks,
                speaks && useful,
                present == Some(*address),
                peer.tie,
                *address,
            )
        })
    };
    peers.iter().filter_map(rank).max().map(|(.., address)| address)
}

/// When the choice may turn out otherwise by time alone.
pub(crate) fn next_look(
    peers: &BTreeMap<SocketAddr, Peer>,
    present: Option<SocketAddr>,
    now: Instant,
) -> Option<Instant> {
    let peer = peers.get(&present?)?;
    let at = peer.heard?.checked_add(HEARTBEAT_TIMEOUT)?;
    (at > now).then_some(at)
}

/// The rows of the status.
pub(crate) fn rows(
    peers: &BTreeMap<SocketAddr, Peer>,
    present: Option<SocketAddr>,
    now: Instant,
) -> Vec<Session> {
    peers
        .iter()
        .map(|(address, peer)| Session {
            replica: peer.replica.clone(),
            state: peer.state(now),
            leader: peer.leader && peer.heard.is_some(),
            followed: present == Some(*address),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Silence in ms (`None`: not up), has a view, tie.
    type Row = (Option<u64>, bool, u32);

    /// Rows, the present one, whether views are wanted, who is chosen.
    type Case = (&'static [Row], Option<u16>, bool, Option<u16>);

    fn chosen(rows: &[Row], present: Option<u16>, views: bool) -> Option<u16> {
        let now = Instant::now() + Duration::from_secs(60);
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let peers = rows
            .iter()
            .zip(1_u16..)
            .map(|((silence, has_view, tie), port)| {
                let heard = silence.map(|ms| now - Duration::from_millis(ms));
                let peer = Peer {
                    has_view: *has_view,
                    heard,
                    ..Peer::new(*tie)
                };
                (address(port), peer)
            })
            .collect();
        choose(&peers, present.map(address), views, now).map(|address| address.port())
    }

    #[test]
    fn the_present_one_stays_while_it_speaks() {
        let table: &[Case] = &[
            (&[], None, true, None),
            (&[(None, true, 9)], None, true, None),
            (&[(Some(0), true, 1), (Some(0), true, 2)], None, true, Some(2)),
            (&[(Some(0), true, 1), (Some(0), true, 2)], Some(1), true, Some(1)),
            (
                &[(Some(799), true, 1), (Some(0), true, 2)],
                Some(1),
                true,
                Some(1),
            ),
            (
                &[(Some(800), true, 1), (Some(0), true, 2)],
                Some(1),
                true,
                Some(2),
            ),
            (
                &[(Some(900), true, 1), (Some(850), true, 2)],
                Some(1),
                true,
                Some(1),
            ),
            (&[(None, true, 1), (Some(850), true, 2)], Some(1), true, Some(2)),
            (&[(Some(0), false, 1), (Some(0), true, 0)], Some(1), true, Some(2)),
            (
                &[(Some(0), false, 1), (Some(0), true, 0)],
                Some(1),
                false,
                Some(1),
            ),
            (
                &[(Some(0), false, 1), (Some(900), true, 0)],
                Some(1),
                true,
                Some(1),
            ),
        ];
        for (rows, present, views, expected) in table {
            assert_eq!(
                chosen(rows, *present, *views),
                *expected,
                "{rows:?} {present:?} {views}"
            );
        }
    }
}
