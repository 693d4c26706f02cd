//! Connections on which nobody has shown a good token yet.
//!
//! They have places of their own, so that they take none from routers; and none is refused while others hold all of
//! them: the oldest one of the address that has most makes way. Whoever shows a good token at once, as routers do, gets
//! in while thousands of others only wait.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::limits::{MAX_STRANGERS, MAX_STRANGERS_PER_PEER};

/// Whoever is behind an address: one of IPv4, or a network of IPv6, which is what one machine may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Peer(IpAddr);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    count: usize,
    /// By age.
    peers: BTreeMap<Peer, BTreeMap<u64, CancellationToken>>,
}

/// One of them; its place is free when this is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    table: Arc<Strangers>,
    peer: Peer,
    number: u64,
    /// Cancelled when it has to make way.
    pub(super) made_way: CancellationToken,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

impl Strangers {
    /// Takes a new connection in. Says whether another one had to make way for it.
    pub(super) fn admit(self: &Arc<Self>, peer: Peer) -> (Stranger, bool) {
        let made_way = CancellationToken::new();
        let mut inner = self.lock();
        let of_peer = inner.peers.get(&peer).map_or(0, BTreeMap::len);
        let from = if of_peer >= MAX_STRANGERS_PER_PEER {
            Some(peer)
        } else if inner.count >= MAX_STRANGERS {
            let most = inner.peers.iter().max_by_key(|(_, of)| of.len());
            most.map(|(peer, _)| *peer)
        } else {
            None
        };
        if let Some(from) = from {
            inner.evict(from);
        }
        let number = inner.next;
        inner.next = inner.next.wrapping_add(1);
        inner.count = inner.count.saturating_add(1);
        inner
            .peers
            .entry(peer)
            .or_default()
            .insert(number, made_way.clone());
        drop(inner);
        let stranger = Stranger {
            table: Arc::clone(self),
            peer,
            number,
            made_way,
        };
        (stranger, from.is_some())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The oldest of a peer makes way.
    fn evict(&mut self, peer: Peer) {
        let oldest = self.peers.get(&peer).and_then(BTreeMap::first_key_value);
        if let Some((number, made_way)) = oldest.map(|(number, made_way)| (*number, made_way.clone())) {
            made_way.cancel();
            self.remove(peer, number);
        }
    }

    fn remove(&mut self, peer: Peer, number: u64) {
        let Some(of_peer) = self.peers.get_mut(&peer) else {
            return;
        };
        if of_peer.remove(&number).is_some() {
            self.count = self.count.saturating_sub(1);
        }
        if of_peer.is_empty() {
            self.peers.remove(&peer);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.table.lock().remove(self.peer, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: usize) -> Peer {
        let [.., a, b] = number.to_be_bytes();
        Peer::from(IpAddr::from([10, 0, a, b]))
    }

    #[test]
    fn the_oldest_of_one_address_makes_way_for_the_next_of_it() {
        let table = Arc::new(Strangers::default());
        let other = table.admit(peer(1)).0;
        let mut all: Vec<Stranger> = Vec::new();
        for _ in 0..MAX_STRANGERS_PER_PEER {
            let (next, evicted) = table.admit(peer(2));
            assert!(!evicted);
            all.push(next);
        }
        let (next, evicted) = table.admit(peer(2));
        assert!(evicted && all[0].made_way.is_cancelled() && !all[1].made_way.is_cancelled());
        // One that went by itself left its place.
        drop(all.remove(1));
        assert!(!table.admit(peer(2)).1);
        assert!(!other.made_way.is_cancelled() && !next.made_way.is_cancelled());
        drop((all, next, other));
        let inner = table.lock();
        assert!(inner.count == 0 && inner.peers.is_empty());
    }

    #[test]
    fn those_of_many_addresses_together_leave_room_for_who_has_few() {
        let table = Arc::new(Strangers::default());
        let busy = MAX_STRANGERS / 4;
        let mut all: Vec<Stranger> = (0..MAX_STRANGERS).map(|n| table.admit(peer(n % 4)).0).collect();
        assert_eq!(table.lock().count, MAX_STRANGERS);
        let (router, evicted) = table.admit(peer(9));
        assert!(evicted);
        for _ in 0..busy {
            all.push(table.admit(peer(3)).0);
        }
        assert!(!router.made_way.is_cancelled(), "it has one");
        assert_eq!(table.lock().count, MAX_STRANGERS);
    }

    #[test]
    fn a_machine_is_one_peer_however_many_addresses_it_takes() {
        let of = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::7"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
