//! Whom to follow: what is known of each session, and the rule that chooses one.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    limits::{CATCH_UP, HEARTBEAT_TIMEOUT},
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
    /// Generation of the newest configuration that it announces.
    pub(crate) config: Option<i64>,
    /// Since when another one announces a newer one.
    pub(crate) outdated: Option<Instant>,
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
            config: None,
            outdated: None,
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

/// Notes who announces an older configuration than another one that speaks.
pub(crate) fn compare(peers: &mut [&mut Peer], now: Instant) {
    let speaking = peers.iter().filter(|peer| peer.state(now) == SessionState::Up);
    let newest = speaking.filter_map(|peer| peer.config).max();
    for peer in peers {
        peer.outdated = (peer.config < newest).then(|| peer.outdated.unwrap_or(now));
    }
}

/// Whom to follow: the present one while it speaks, else one that speaks; before all others one that has a view where
/// views are wanted, then one that is not left behind by the configuration of another: replicas learn of a change one
/// after the other, and one that hangs never does. While nobody speaks the present one stays, as long as its session is up.
pub(crate) fn choose(
    peers: &BTreeMap<SocketAddr, Peer>,
    present: Option<SocketAddr>,
    views: bool,
    now: Instant,
) -> Option<SocketAddr> {
    let rank = |(address, peer): (&SocketAddr, &Peer)| {
        let speaks = peer.state(now) == SessionState::Up;
        let useful = peer.has_view || !views;
        let outdated = |since: Instant| now.saturating_duration_since(since) >= CATCH_UP;
        let current = !peer.outdated.is_some_and(outdated);
        peer.heard.map(|_up| {
            (
                speaks,
                speaks && useful,
                speaks && current,
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

    #[test]
    fn one_that_never_sees_a_newer_configuration_is_left() {
        let begun = Instant::now();
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (hangs, sees) = (address(1), address(2));
        let mut peers = BTreeMap::from([(hangs, Peer::new(9)), (sees, Peer::new(1))]);
        // Who announces which, when, and who is followed then.
        let table = [
            (0, 7, 7, hangs),
            (500, 7, 8, hangs),
            // In time.
            (2_000, 8, 8, hangs),
            (3_000, 8, 9, hangs),
            (4_900, 8, 9, hangs),
            (5_000, 8, 9, sees),
            // It is back, and nobody returns for that.
            (6_000, 9, 9, sees),
        ];
        let mut followed = None;
        for (ms, first, second, expected) in table {
            let now = begun + Duration::from_millis(ms);
            for (at, generation) in [(hangs, first), (sees, second)] {
                let peer = peers.get_mut(&at).unwrap();
                (peer.heard, peer.config, peer.has_view) = (Some(now), Some(generation), true);
            }
            compare(&mut peers.values_mut().collect::<Vec<_>>(), now);
            for views in [false, true] {
                assert_eq!(choose(&peers, followed, views, now), Some(expected), "at {ms}");
            }
            followed = Some(expected);
        }
        // One that is silent is not waited for.
        let now = begun + Duration::from_secs(10);
        let peer = peers.get_mut(&hangs).unwrap();
        (peer.heard, peer.config) = (Some(now), Some(8));
        compare(&mut peers.values_mut().collect::<Vec<_>>(), now);
        assert_eq!(choose(&peers, followed, true, now), Some(hangs));
    }
}
