//! How each address fares with its tokens: turns for questions about them, and a pause after many bad ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Semaphore, time::Instant};

use super::{
    limits::{FORGIVE, MAX_PEERS, MAX_REFUSALS, MAX_REVIEWS_PER_PEER},
    strangers::Peer,
};

/// What is known of addresses. Good tokens leave nothing here.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<Peer, Entry>>);

#[derive(Debug)]
struct Entry {
    turns: Arc<Semaphore>,
    refused: u32,
    /// When one was last forgiven.
    since: Instant,
}

impl Refusals {
    /// Whether questions about tokens from there are answered at once, and badly.
    pub(super) fn pauses(&self, peer: Peer) -> bool {
        self.lock().get_mut(&peer).is_some_and(|entry| {
            entry.forgive();
            entry.refused >= MAX_REFUSALS
        })
    }

    /// Where questions about tokens from there wait for their turn.
    pub(super) fn turns(&self, peer: Peer) -> Arc<Semaphore> {
        Arc::clone(&entry_of(&mut self.lock(), peer).turns)
    }

    /// A token from there was bad.
    pub(super) fn refused(&self, peer: Peer) {
        let mut peers = self.lock();
        let entry = entry_of(&mut peers, peer);
        entry.forgive();
        entry.refused = entry.refused.saturating_add(1).min(MAX_REFUSALS);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Peer, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry_of(peers: &mut BTreeMap<Peer, Entry>, peer: Peer) -> &mut Entry {
    if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
        peers.retain(|_, entry| {
            entry.forgive();
            entry.refused > 0 || Arc::strong_count(&entry.turns) > 1
        });
        // Nobody is forgotten for good: the one with the fewest is asked about again a little earlier.
        let least = peers.iter().min_by_key(|(_, entry)| entry.refused);
        if let Some(least) = least.map(|(peer, _)| *peer).filter(|_| peers.len() >= MAX_PEERS) {
            peers.remove(&least);
        }
    }
    peers.entry(peer).or_insert_with(|| Entry {
        turns: Arc::new(Semaphore::new(MAX_REVIEWS_PER_PEER)),
        refused: 0,
        since: Instant::now(),
    })
}

impl Entry {
    fn forgive(&mut self) {
        while self.refused > 0 && self.since.elapsed() >= FORGIVE {
            self.refused = self.refused.saturating_sub(1);
            self.since += FORGIVE;
        }
        if self.refused == 0 {
            self.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::time::advance;

    use super::*;

    fn peer(number: usize) -> Peer {
        let [.., a, b, c] = number.to_be_bytes();
        Peer::from(IpAddr::from([10, a, b, c]))
    }

    #[tokio::test(start_paused = true)]
    async fn many_bad_tokens_make_a_pause_that_ends() {
        let refusals = Refusals::default();
        for _ in 0..MAX_REFUSALS {
            assert!(!refusals.pauses(peer(1)));
            refusals.refused(peer(1));
        }
        assert!(refusals.pauses(peer(1)) && !refusals.pauses(peer(2)));
        advance(FORGIVE).await;
        assert!(!refusals.pauses(peer(1)), "one more may be tried");
        refusals.refused(peer(1));
        assert!(refusals.pauses(peer(1)));
        advance(FORGIVE * (MAX_REFUSALS + 1)).await;
        refusals.refused(peer(1));
        assert!(!refusals.pauses(peer(1)), "all is forgiven");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..MAX_PEERS * 2 {
            refusals.refused(peer(number));
        }
        assert_eq!(refusals.lock().len(), MAX_PEERS);
        // Those that wait for an answer stay, and who has nothing goes first.
        advance(FORGIVE * 2).await;
        let turns = refusals.turns(peer(7));
        refusals.refused(peer(MAX_PEERS * 3));
        assert_eq!(refusals.lock().len(), 2);
        drop(turns);
    }
}
