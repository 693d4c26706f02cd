use std::{collections::BTreeMap, sync::mpsc, thread, time::Duration};

use continuum_fleet::{
    graphs::Generation,
    ids::{InstanceId, Namespace, PublisherId, Rank, WorkerKey},
    view::{Card, Publisher, PublisherKey, RankRange, Role, Seen, Topic, Transport, Worker},
};
use continuum_wire::{
    Refusal as Unlawful,
    router_event::{Block, Data, Domain, RouterEvent, Stored, Tier, encode},
};
use jiff::Timestamp;

use super::*;
use crate::{
    Caps, Matches, Overlap, RankKey,
    limits::{FEEDER_SILENT_AFTER, MAX_STREAMS_PER_RANK, MISSES_FOR},
};

mod lossy;

const NS: &str = "dynamo";
const W: u64 = 7;

fn card() -> Card {
    Card {
        block_size: Some(16),
        ranks: RankRange { start: 0, size: 2 },
        ..Card::default()
    }
}

fn worker(id: u64, role: Role, card: Option<Card>) -> Worker {
    Worker {
        key: WorkerKey {
            namespace: NS.into(),
            instance: InstanceId::new(id),
        },
        graph: NS.into(),
        component: "backend".into(),
        endpoint: "generate".into(),
        generation: Generation::Base,
        role,
        names: [].into(),
        card: card.map(Arc::new),
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    }
}

/// A publisher, and the worker and rank that its source record names.
type Registered = (u64, Option<(u64, u32)>);

fn view(workers: impl IntoIterator<Item = Worker>, publishers: &[Registered]) -> FleetView {
    let publisher = |(id, feeds): &Registered| Publisher {
        key: PublisherKey {
            topic: Topic::KvEvents,
            id: PublisherId::new(*id),
        },
        namespace: NS.into(),
        graph: NS.into(),
        component: None,
        transport: Transport::Zmq { endpoint: "".into() },
        feeds: feeds.map(|(worker, rank)| (InstanceId::new(worker), Rank(rank))),
    };
    FleetView {
        workers: workers
            .into_iter()
            .map(|worker| (worker.key.clone(), Arc::new(worker)))
            .collect(),
        publishers: publishers
            .iter()
            .map(publisher)
            .map(|publisher| (publisher.key, Arc::new(publisher)))
            .collect(),
        ..FleetView::default()
    }
}

fn key(worker: u64, rank: u32) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: NS.into(),
            instance: InstanceId::new(worker),
        },
        rank,
    }
}

struct Fixture {
    intake: Intake,
    cursors: Cursors,
    now: Duration,
}

impl Fixture {
    fn with(view: &FleetView) -> Self {
        let intake = Intake::new(Arc::new(Index::new(Caps::default())));
        intake.follow(view, Duration::ZERO);
        Self {
            intake,
            cursors: Cursors::new(1),
            now: Duration::ZERO,
        }
    }

    /// One worker of two ranks, without source records.
    fn new() -> Self {
        Self::with(&view([worker(W, Role::Aggregated, Some(card()))], &[]))
    }

    fn tell(&mut self, publisher: u64, event: &RouterEvent) -> Vec<Outcome> {
        self.tell_all(publisher, std::slice::from_ref(event))
    }

    fn tell_all(&mut self, publisher: u64, events: &[RouterEvent]) -> Vec<Outcome> {
        accept_at(&self.intake, &mut self.cursors, publisher, events, self.now)
    }

    fn overlap(&self, rank: u32, tokens: &[u64]) -> Overlap {
        overlap(&self.intake, &key(W, rank), tokens)
    }

    fn blocks(&self, rank: u32, tokens: &[u64]) -> u32 {
        self.overlap(rank, tokens).device
    }
}

fn accept(intake: &Intake, cursors: &mut Cursors, publisher: u64, events: &[RouterEvent]) -> Vec<Outcome> {
    accept_at(intake, cursors, publisher, events, Duration::ZERO)
}

fn accept_at(
    intake: &Intake,
    cursors: &mut Cursors,
    publisher: u64,
    events: &[RouterEvent],
    now: Duration,
) -> Vec<Outcome> {
    let namespace = Namespace::from(NS);
    let from = origin(publisher, &namespace, now);
    let tally = intake.accept(cursors, from, &encode(events), &Limits::KV_EVENTS);
    tally
        .iter()
        .flat_map(|(outcome, times)| vec![outcome; times as usize])
        .collect()
}

const fn origin(publisher: u64, namespace: &Namespace, now: Duration) -> Origin<'_> {
    Origin {
        publisher: PublisherId::new(publisher),
        namespace,
        now,
    }
}

fn overlap(intake: &Intake, rank: &RankKey, tokens: &[u64]) -> Overlap {
    let mut matches = Matches::new();
    intake.index().find(tokens, &mut matches);
    matches.of(rank)
}

/// The engine's name of a block: that of the tokens up to it.
fn name(path: &[u64]) -> u64 {
    path.iter().fold(1, |name: u64, tokens| {
        name.wrapping_mul(1_000_003).wrapping_add(*tokens)
    })
}

fn event(id: u64, rank: u32, data: Data) -> RouterEvent {
    RouterEvent {
        worker_id: W,
        tier: Tier::Device,
        domain: Domain::Worker,
        event_id: id,
        rank,
        data,
    }
}

/// The blocks of `path` behind the first `held`.
fn stored(held: usize, path: &[u64]) -> Data {
    let block = |end: usize| Block {
        hash: name(&path[..end]),
        tokens: path[end - 1],
        multimodal: false,
    };
    Data::Stored(Stored {
        parent: (held > 0).then(|| name(&path[..held])),
        blocks: (held + 1..=path.len()).map(block).collect(),
    })
}

fn removed(path: &[u64]) -> Data {
    Data::Removed(vec![name(path)])
}

use Outcome as O;

#[test]
fn only_ranks_of_the_view_that_can_be_compared_are_heard() {
    let cards = |change: fn(&mut Card)| {
        let mut card = card();
        change(&mut card);
        Some(card)
    };
    let identity = O::Refused(Unlawful::IdentityMismatch);
    for (what, role, card, rank, expected) in [
        ("first rank", Role::Aggregated, cards(|_| {}), 0, O::Stored),
        ("last rank", Role::Prefill, cards(|_| {}), 1, O::Stored),
        ("decode", Role::Decode, cards(|_| {}), 1, O::Stored),
        ("beyond", Role::Aggregated, cards(|_| {}), 2, identity),
        (
            "global",
            Role::Aggregated,
            cards(|c| c.ranks.start = 4),
            5,
            O::Stored,
        ),
        (
            "before",
            Role::Aggregated,
            cards(|c| c.ranks.start = 4),
            3,
            identity,
        ),
        ("no card", Role::Aggregated, None, 0, identity),
        ("encode", Role::Encode, cards(|_| {}), 0, O::UnscoredWorker),
        (
            "eagle",
            Role::Decode,
            cards(|c| c.enable_eagle = true),
            0,
            O::Stored,
        ),
        (
            "no block size",
            Role::Decode,
            cards(|c| c.block_size = None),
            0,
            O::UnscoredWorker,
        ),
        (
            "the engine itself",
            Role::Decode,
            cards(|c| c.kv_event_source_mode = Some("framework_v1".into())),
            0,
            O::Stored,
        ),
        (
            "an agent",
            Role::Decode,
            cards(|c| c.kv_event_source_mode = Some("state_agent_v2".into())),
            0,
            O::Stored,
        ),
        (
            "something new",
            Role::Decode,
            cards(|c| c.kv_event_source_mode = Some("oracle_v3".into())),
            0,
            O::UnscoredWorker,
        ),
        (
            "under another endpoint",
            Role::Decode,
            cards(|c| c.kv_state_namespace = Some(NS.into())),
            0,
            O::Stored,
        ),
        (
            "in another namespace",
            Role::Decode,
            cards(|c| c.kv_state_namespace = Some("elsewhere".into())),
            0,
            O::UnscoredWorker,
        ),
        (
            "where nobody can read",
            Role::Decode,
            cards(|c| c.kv_state_namespace = Some(String::new())),
            0,
            O::UnscoredWorker,
        ),
    ] {
        let mut f = Fixture::with(&view([worker(W, role, card)], &[]));
        assert_eq!(f.tell(1, &event(1, rank, stored(0, &[1]))), [expected], "{what}");
        assert_eq!(f.blocks(rank, &[1]), u32::from(expected == O::Stored), "{what}");
    }
    let mut f = Fixture::new();
    let elsewhere = RouterEvent {
        worker_id: 8,
        ..event(1, 0, stored(0, &[1]))
    };
    assert_eq!(f.tell(1, &elsewhere), [identity]);
    let namespace = Namespace::from("another");
    let payload = encode(&[event(1, 0, stored(0, &[1]))]);
    let from = origin(1, &namespace, Duration::ZERO);
    let tally = f
        .intake
        .accept(&mut f.cursors, from, &payload, &Limits::KV_EVENTS);
    assert_eq!(tally.of(identity), 1);
}

#[test]
fn any_event_may_be_the_first_and_a_hole_empties_its_rank_alone() {
    let mut f = Fixture::new();
    assert_eq!(f.tell(1, &event(41, 0, stored(0, &[1, 2]))), [O::Stored]);
    assert_eq!(f.tell(1, &event(42, 0, stored(2, &[1, 2, 3]))), [O::Stored]);
    assert_eq!(f.tell(1, &event(1, 1, stored(0, &[1, 2]))), [O::Stored]);
    assert_eq!(f.tell(1, &event(42, 0, Data::Cleared)), [O::Duplicate]);
    assert_eq!(f.tell(1, &event(7, 0, Data::Cleared)), [O::Duplicate]);
    assert_eq!((f.blocks(0, &[1, 2, 3]), f.blocks(1, &[1, 2, 3])), (3, 2));
    assert_eq!(
        f.tell(1, &event(44, 0, stored(3, &[1, 2, 3, 4]))),
        [O::Gap, O::MissingParent]
    );
    assert_eq!((f.blocks(0, &[1, 2, 3]), f.blocks(1, &[1, 2, 3])), (0, 2));
    assert_eq!(f.tell(1, &event(45, 0, stored(0, &[1]))), [O::Stored]);
    assert_eq!(f.tell(1, &event(46, 0, removed(&[1]))), [O::Removed]);
    assert_eq!(
        f.tell(1, &event(47, 0, removed(&[1]))),
        [O::Removed, O::UnknownBlock]
    );
    assert_eq!(
        f.tell(1, &event(u64::MAX, 0, stored(0, &[1]))),
        [O::Stored, O::Gap]
    );
    assert_eq!(f.tell(1, &event(u64::MAX, 0, Data::Cleared)), [O::Duplicate]);
}

#[test]
fn domains_and_tiers() {
    let mut f = Fixture::new();
    let in_tier = |id, tier, data| RouterEvent {
        tier,
        ..event(id, 0, data)
    };
    let in_domain = |id, domain, data| RouterEvent {
        domain,
        ..event(id, 0, data)
    };
    let path = [1, 2, 3];
    assert_eq!(
        f.tell(1, &in_domain(1, Domain::Legacy, stored(0, &path[..1]))),
        [O::Stored]
    );
    assert_eq!(
        f.tell(1, &in_tier(2, Tier::HostPinned, stored(1, &path[..2]))),
        [O::Stored]
    );
    assert_eq!(f.tell(1, &in_tier(3, Tier::Disk, stored(2, &path))), [O::Stored]);
    assert_eq!(
        f.tell(1, &in_tier(4, Tier::External, removed(&path))),
        [O::OtherTier]
    );
    let all = Overlap {
        device: 1,
        host: 1,
        disk: 1,
    };
    assert_eq!(f.overlap(0, &path), all);
    for (id, domain) in [(5, Domain::CacheOwner), (6, Domain::Unknown)] {
        assert_eq!(
            f.tell(1, &in_domain(id, domain, Data::Cleared)),
            [O::UnsupportedDomain]
        );
    }
    assert_eq!(
        f.tell(1, &in_domain(7, Domain::CacheOwner, stored(0, &[9]))),
        [O::UnsupportedDomain]
    );
    assert_eq!((f.overlap(0, &path), f.blocks(0, &[9])), (all, 0));
    assert_eq!(f.tell(1, &event(8, 0, Data::Cleared)), [O::Cleared]);
    assert_eq!(f.overlap(0, &path), Overlap::default());
    assert_eq!(
        f.tell(1, &event(9, 0, stored(0, &path))),
        [O::Stored],
        "no gap in between"
    );
    assert_eq!(
        f.tell(1, &in_domain(10, Domain::Legacy, Data::Cleared)),
        [O::Cleared]
    );
    assert_eq!(f.overlap(0, &path), Overlap::default());
}

#[test]
fn the_source_record_decides_who_feeds_a_rank() {
    let workers = || {
        [
            worker(W, Role::Aggregated, Some(card())),
            worker(8, Role::Aggregated, Some(card())),
        ]
    };
    let first = view(workers(), &[(1, Some((W, 0))), (2, None), (3, Some((8, 0)))]);
    let mut f = Fixture::with(&first);
    assert_eq!(f.tell(2, &event(1, 0, stored(0, &[1]))), [O::Foreign]);
    assert_eq!(
        f.tell(3, &event(1, 0, stored(0, &[1]))),
        [O::Foreign],
        "it speaks for another worker"
    );
    assert_eq!(f.tell(3, &event(1, 1, stored(0, &[1]))), [O::Foreign]);
    assert_eq!(f.tell(1, &event(1, 0, stored(0, &[1, 2]))), [O::Stored]);
    assert_eq!(
        f.tell(1, &event(1, 1, stored(0, &[1]))),
        [O::Stored],
        "another rank of its worker"
    );
    assert_eq!(
        f.tell(2, &event(1, 1, stored(0, &[1]))),
        [O::Stored],
        "nobody is named for that rank"
    );
    // The record now names the second one: emptied once, and the first one is not heard any more.
    f.intake
        .follow(&view(workers(), &[(1, None), (2, Some((W, 0)))]), f.now);
    assert_eq!(f.blocks(0, &[1, 2]), 0);
    assert_eq!(f.tell(1, &event(2, 0, stored(2, &[1, 2, 3]))), [O::Foreign]);
    assert_eq!(f.tell(2, &event(2, 0, stored(0, &[5]))), [O::Stored]);
    f.intake
        .follow(&view(workers(), &[(1, None), (2, Some((W, 0)))]), f.now);
    assert_eq!(f.blocks(0, &[5]), 1, "the same view empties nothing");
}

#[test]
fn without_a_record_the_latest_registered_feeds() {
    let seen = |publishers: &[Registered]| view([worker(W, Role::Aggregated, Some(card()))], publishers);
    let mut f = Fixture::with(&seen(&[(5, None)]));
    assert_eq!(
        f.tell(9, &event(1, 0, stored(0, &[1]))),
        [O::Stored],
        "nobody else is there"
    );
    assert_eq!(
        f.tell(5, &event(1, 0, stored(0, &[2]))),
        [O::Stored],
        "registered before unregistered"
    );
    assert_eq!(f.blocks(0, &[1]), 0, "emptied at the change");
    assert_eq!(f.tell(9, &event(2, 0, stored(0, &[1]))), [O::Foreign]);
    f.intake.follow(&seen(&[(5, None), (3, None)]), f.now);
    assert_eq!(f.blocks(0, &[2]), 1, "not before the new one speaks");
    assert_eq!(f.tell(3, &event(10, 0, stored(0, &[3]))), [O::Stored]);
    assert_eq!((f.blocks(0, &[2]), f.blocks(0, &[3])), (0, 1));
    assert_eq!(f.tell(5, &event(2, 0, stored(0, &[2]))), [O::Foreign]);
    assert_eq!(f.tell(3, &event(11, 0, stored(1, &[3, 4]))), [O::Stored]);
    // The new one leaves. What the old one says now continues what it said while nobody listened.
    f.intake.follow(&seen(&[(5, None)]), f.now);
    assert_eq!(f.tell(5, &event(3, 0, stored(0, &[2]))), [O::Stored]);
    assert_eq!((f.blocks(0, &[2]), f.blocks(0, &[3, 4])), (1, 0));
}

#[test]
fn an_unregistered_publisher_takes_over_only_from_one_that_fell_silent() {
    let mut f = Fixture::new();
    let almost = FEEDER_SILENT_AFTER - Duration::from_millis(1);
    assert_eq!(f.tell(1, &event(1, 0, stored(0, &[1]))), [O::Stored]);
    // One message with another id, and a worker that is not its own.
    assert_eq!(f.tell(2, &event(1, 0, stored(0, &[2]))), [O::Foreign]);
    f.now += almost;
    assert_eq!(f.tell(1, &event(2, 0, stored(1, &[1, 3]))), [O::Stored]);
    f.now += almost;
    assert_eq!(f.tell(2, &event(2, 0, stored(0, &[2]))), [O::Foreign]);
    assert_eq!((f.blocks(0, &[1, 3]), f.blocks(0, &[2])), (2, 0));
    // What comes on another way is heard as well.
    let mut other = Cursors::new(2);
    let late = event(3, 0, stored(0, &[4]));
    assert_eq!(
        accept_at(&f.intake, &mut other, 1, &[late], f.now),
        [O::Duplicate]
    );
    f.now += almost;
    assert_eq!(f.tell(2, &event(3, 0, stored(0, &[2]))), [O::Foreign]);
    f.now += Duration::from_millis(1);
    assert_eq!(f.tell(2, &event(4, 0, stored(0, &[2]))), [O::Stored]);
    assert_eq!(
        (f.blocks(0, &[1]), f.blocks(0, &[2])),
        (0, 1),
        "emptied at the change"
    );
    // The first one is back, and gets the rank back when the other one has nothing more to say.
    assert_eq!(f.tell(1, &event(3, 0, stored(0, &[4]))), [O::Foreign]);
    f.now += FEEDER_SILENT_AFTER;
    assert_eq!(f.tell(1, &event(4, 0, stored(0, &[1]))), [O::Stored]);
    assert_eq!((f.blocks(0, &[1]), f.blocks(0, &[2])), (1, 0));
}

#[test]
fn whose_record_comes_to_name_another_worker_feeds_this_one_no_more() {
    let seen = |feeds| {
        let workers = [
            worker(W, Role::Aggregated, Some(card())),
            worker(8, Role::Aggregated, Some(card())),
        ];
        view(workers, &[(1, feeds)])
    };
    let mut f = Fixture::with(&seen(None));
    assert_eq!(f.tell(1, &event(1, 0, stored(0, &[1]))), [O::Stored]);
    f.intake.follow(&seen(Some((8, 0))), f.now);
    assert_eq!(f.blocks(0, &[1]), 0);
    assert_eq!(f.tell(1, &event(2, 0, stored(0, &[1]))), [O::Foreign]);
}

#[test]
fn the_same_stream_on_two_ways_is_read_once() {
    let mut f = Fixture::new();
    let mut other = Cursors::new(2);
    assert_eq!(f.tell(1, &event(1, 0, stored(0, &[1]))), [O::Stored]);
    assert_eq!(f.tell(1, &event(2, 0, removed(&[1]))), [O::Removed]);
    for late in [event(1, 0, stored(0, &[1])), event(2, 0, removed(&[1]))] {
        assert_eq!(accept(&f.intake, &mut other, 1, &[late]), [O::Duplicate]);
    }
    assert_eq!(f.blocks(0, &[1]), 0);
    // The first way is lost for long: the other one takes over, from where it is.
    assert_eq!(f.intake.age(&f.cursors, f.now), 1);
    assert_eq!(
        accept(&f.intake, &mut other, 1, &[event(3, 0, stored(0, &[1]))]),
        [O::Stored]
    );
    assert_eq!(f.tell(1, &event(3, 0, stored(0, &[1]))), [O::Duplicate]);
    assert_eq!(f.tell(1, &event(4, 0, Data::Cleared)), [O::Duplicate]);
    assert_eq!(f.blocks(0, &[1]), 1);
}

#[test]
fn what_an_aged_or_ended_subscription_fed_is_forgotten_and_its_cursors_tell_replays() {
    let mut f = Fixture::new();
    f.tell_all(1, &[event(1, 0, stored(0, &[1])), event(1, 1, stored(0, &[1]))]);
    assert_eq!(f.intake.age(&f.cursors, f.now), 2);
    assert_eq!(f.intake.age(&f.cursors, f.now), 0, "once");
    assert_eq!((f.blocks(0, &[1]), f.blocks(1, &[1])), (0, 0));
    assert_eq!(f.tell(1, &event(1, 0, stored(0, &[1]))), [O::Duplicate]);
    assert_eq!(
        f.tell(1, &event(2, 0, stored(1, &[1, 2]))),
        [O::MissingParent],
        "no gap, but nothing to continue"
    );
    assert_eq!(f.tell(1, &event(3, 0, stored(0, &[1]))), [O::Stored]);
    assert_eq!(f.intake.end(&mut f.cursors, f.now), 1);
    assert!(f.cursors.is_empty());
    assert_eq!(f.blocks(0, &[1]), 0);
    assert_eq!(
        f.tell(1, &event(1, 0, stored(0, &[1]))),
        [O::Stored],
        "a new beginning"
    );
}

#[test]
fn cursors_are_bounded_and_those_of_departed_ranks_make_room() {
    let range = |start| {
        let mut card = card();
        card.ranks = RankRange { start, size: 3 };
        view([worker(W, Role::Aggregated, Some(card))], &[])
    };
    let mut f = Fixture::with(&range(0));
    f.intake.bound_cursors(2);
    for (id, rank, expected) in [
        (1, 0, O::Stored),
        (1, 1, O::Stored),
        (1, 2, O::OverCapacity),
        (2, 1, O::Stored),
    ] {
        assert_eq!(f.tell(1, &event(id, rank, stored(0, &[1]))), [expected], "{rank}");
        assert_eq!(f.cursors.is_full(), (id, rank) > (1, 1), "{rank}");
    }
    // A new bound is that of cursors that are there already, too.
    f.intake.bound_cursors(3);
    assert_eq!(f.tell(1, &event(1, 2, stored(0, &[1]))), [O::Stored]);
    f.intake.bound_cursors(2);
    assert_eq!(f.tell(1, &event(2, 2, stored(0, &[1]))), [O::Stored], "it stays");
    f.intake.follow(&range(3), f.now);
    assert_eq!(f.tell(1, &event(1, 3, stored(0, &[1]))), [O::Stored]);
    assert!(!f.cursors.is_full());
    assert_eq!(f.cursors.len(), 1);
}

#[test]
fn invented_publishers_take_each_others_place_and_nobody_elses() {
    let mut f = Fixture::new();
    f.intake.bound_cursors(2);
    assert_eq!(f.tell(1, &event(1, 0, stored(0, &[1]))), [O::Stored]);
    for id in 100..10_000 {
        f.now += Duration::from_millis(1);
        assert_eq!(f.tell(id, &event(1, 0, stored(0, &[2]))), [O::Foreign]);
        assert!(f.cursors.len() <= MAX_STREAMS_PER_RANK);
    }
    // The feeder, silent for longest of all, has its place; so has who joins.
    assert_eq!(f.tell(1, &event(1, 0, Data::Cleared)), [O::Duplicate]);
    assert_eq!(f.tell(1, &event(2, 0, stored(1, &[1, 3]))), [O::Stored]);
    assert_eq!(f.blocks(0, &[1, 3]), 2);
    assert_eq!(f.tell(9, &event(1, 1, stored(0, &[1]))), [O::Stored]);
}

#[test]
fn a_departed_rank_loses_all_and_a_new_block_size_begins_anew() {
    let mut f = Fixture::new();
    let sized = |block_size| {
        let card = Card { block_size, ..card() };
        view([worker(W, Role::Aggregated, Some(card))], &[])
    };
    f.tell(1, &event(1, 0, stored(0, &[1])));
    f.intake.follow(&sized(Some(32)), f.now);
    assert_eq!(f.blocks(0, &[1]), 0, "hashes of other blocks");
    assert_eq!(f.tell(1, &event(2, 0, stored(0, &[1]))), [O::Stored]);
    f.intake.follow(&sized(None), f.now);
    assert_eq!(f.tell(1, &event(3, 0, stored(0, &[1]))), [O::UnscoredWorker]);
    f.intake.follow(&sized(Some(32)), f.now);
    assert_eq!(f.blocks(0, &[1]), 0);
    f.tell(1, &event(4, 0, stored(0, &[1])));
    f.intake.follow(&FleetView::default(), f.now);
    while f.intake.index().tidy() {}
    assert_eq!(f.intake.index().stats().ownerships, 0);
}

#[test]
fn a_new_index_begins_empty() {
    let mut f = Fixture::new();
    f.tell(1, &event(1, 0, stored(0, &[1])));
    f.intake.fill(Arc::new(Index::new(Caps::default())), f.now);
    assert_eq!(f.blocks(0, &[1]), 0);
    assert_eq!(f.tell(1, &event(2, 0, stored(0, &[1]))), [O::Stored]);
    assert_eq!(f.blocks(0, &[1]), 1);
}

#[test]
fn what_of_a_message_is_usable_is_used() {
    let mut f = Fixture::new();
    let good = encode(&[event(1, 0, stored(0, &[1]))]);
    let namespace = Namespace::from(NS);
    let from = origin(1, &namespace, Duration::ZERO);
    // Two events, the second of which breaks off.
    let broken = [&[0x92], &good[1..], &good[1..good.len() - 5]].concat();
    let tally = f.intake.accept(&mut f.cursors, from, &broken, &Limits::KV_EVENTS);
    let counted: Vec<_> = tally.iter().collect();
    assert_eq!(counted, [(O::Stored, 1), (O::Refused(Unlawful::Malformed), 1)]);
    let tally = f.intake.accept(&mut f.cursors, from, b"\xc1", &Limits::KV_EVENTS);
    assert_eq!(tally.of(O::Refused(Unlawful::Malformed)), 1);
    assert_eq!(f.blocks(0, &[1]), 1);
}

#[test]
fn a_rank_misses_blocks_after_a_hole_or_where_events_continue_what_is_not_known() {
    let mut fixture = Fixture::new();
    let misses = |fixture: &Fixture| fixture.intake.misses(&key(W, 0), fixture.now);
    fixture.tell(1, &event(1, 0, stored(0, &[1, 2])));
    assert!(!misses(&fixture), "all is known from the first event on");
    fixture.tell(1, &event(3, 0, stored(0, &[5])));
    assert!(misses(&fixture), "a hole");
    assert!(
        !fixture.intake.misses(&key(W, 1), fixture.now),
        "the other rank has none"
    );
    fixture.tell(1, &event(4, 0, Data::Cleared));
    assert!(!misses(&fixture), "it says that it holds nothing");
    fixture.tell(1, &event(5, 0, stored(2, &[7, 8, 9])));
    assert!(misses(&fixture), "its blocks continue others");

    let mut fixture = Fixture::new();
    fixture.tell(1, &event(1, 0, stored(0, &[1])));
    fixture.intake.age(&fixture.cursors, fixture.now);
    assert!(misses(&fixture), "what an aged subscription told");
    let mut fixture = Fixture::new();
    fixture.tell(1, &event(1, 0, stored(0, &[1])));
    fixture
        .intake
        .fill(Arc::new(Index::new(Caps::default())), fixture.now);
    assert!(misses(&fixture), "a new index");
}

#[test]
fn what_a_rank_misses_lapses_unless_more_is_missed() {
    let mut f = Fixture::new();
    let misses = |f: &Fixture| f.intake.misses(&key(W, 0), f.now);
    let almost = MISSES_FOR - Duration::from_millis(1);
    f.now += Duration::from_secs(100);
    f.tell_all(1, &[event(1, 0, stored(0, &[1])), event(3, 0, stored(0, &[1]))]);
    f.now += almost;
    assert!(misses(&f), "a hole");
    f.tell(1, &event(4, 0, stored(1, &[7, 8])));
    f.now += almost;
    assert!(misses(&f), "its blocks continue others");
    f.tell(1, &event(5, 0, stored(0, &[9])));
    f.now += Duration::from_millis(1);
    assert!(!misses(&f), "its events have told all for long");
}

#[test]
fn who_was_there_before_anybody_listened_misses() {
    let misses = |f: &Fixture, worker, rank| f.intake.misses(&key(worker, rank), f.now);
    let mut f = Fixture::new();
    f.tell_all(1, &[event(41, 0, stored(0, &[1])), event(1, 1, stored(0, &[1]))]);
    assert!(misses(&f, W, 0), "nobody heard its first events");
    assert!(!misses(&f, W, 1), "it is known from its first event on");

    let seen = |workers: &[u64], publishers: &[Registered]| {
        let one = |id: &u64| worker(*id, Role::Prefill, Some(card()));
        view(workers.iter().map(one), publishers)
    };
    let mut f = Fixture::with(&seen(&[W], &[(1, Some((W, 0)))]));
    assert!(misses(&f, W, 0), "it may say nothing, since it reads what it has");
    assert!(!misses(&f, W, 1), "nobody publishes what it does");
    let both = seen(&[W, 8], &[(1, Some((W, 0))), (2, Some((8, 0)))]);
    f.intake.follow(&both, f.now);
    assert!(!misses(&f, 8, 0), "it came later");
    f.tell(1, &event(1, 0, stored(0, &[1])));
    assert!(!misses(&f, W, 0), "it had said nothing before");
}

#[test]
fn what_requests_ask_waits_for_no_view() {
    let mut f = Fixture::new();
    f.tell_all(1, &[event(1, 0, stored(0, &[1])), event(3, 0, stored(0, &[1]))]);
    let intake = Arc::new(f.intake);
    let (told, answer) = mpsc::channel();
    // As while a view of thousands of ranks is taken over.
    let taken = intake.write();
    let asked = Arc::clone(&intake);
    thread::spawn(move || {
        let worker = key(W, 0).worker;
        let answers = [0, 1].map(|rank| asked.misses(&key(W, rank), Duration::ZERO));
        told.send((answers, asked.is_beyond(&worker))).ok();
    });
    let answer = answer.recv_timeout(Duration::from_secs(10));
    drop(taken);
    assert_eq!(answer, Ok(([true, false], false)));
    // The next view leaves it as it is.
    intake.follow(
        &view([worker(W, Role::Aggregated, Some(card()))], &[]),
        Duration::ZERO,
    );
    assert!(intake.misses(&key(W, 0), Duration::ZERO));
    intake.follow(&FleetView::default(), Duration::ZERO);
    assert!(!intake.misses(&key(W, 0), Duration::ZERO), "it left");
}

/// Workers with so many ranks each.
fn sized(workers: &[(u64, u32)]) -> FleetView {
    let one = |(id, size): &(u64, u32)| {
        let card = Card {
            ranks: RankRange {
                start: 3,
                size: *size,
            },
            ..card()
        };
        worker(*id, Role::Aggregated, Some(card))
    };
    view(workers.iter().map(one), &[])
}

#[test]
fn beyond_the_cap_of_ranks_whoever_is_there_stays_and_nobody_has_more_than_a_share() {
    let cap = |ranks| {
        Index::new(Caps {
            ranks,
            ..Caps::default()
        })
    };
    let indexed = |intake: &Intake, worker: u64| {
        let (index, data) = (intake.index(), stored(0, &[worker]));
        let is_heard = |rank: &u32| index.apply(&key(worker, *rank), Tier::Device, &data).stored == 1;
        u32::try_from((3..40).filter(is_heard).count()).unwrap()
    };
    // Who is there, who comes, how many ranks of each have a place then, and for how many there is none.
    type Case<'a> = (&'a str, &'a [(u64, u32)], &'a [(u64, u32)], &'a [u32], usize);
    let cases: [Case<'_>; 6] = [
        ("all fit", &[(5, 2)], &[(5, 2), (1, 6)], &[2, 6], 0),
        ("one alone has all of them", &[], &[(5, 30)], &[8], 22),
        (
            "a new one with a low id",
            &[(5, 2), (6, 2), (7, 2), (8, 2)],
            &[(5, 2), (6, 2), (7, 2), (8, 2), (1, 2)],
            &[2, 2, 2, 2, 0],
            2,
        ),
        (
            "new ones take what is beyond a share",
            &[(5, 8)],
            &[(5, 8), (6, 1), (7, 4)],
            &[5, 1, 2],
            5,
        ),
        (
            "somebody left",
            &[(5, 2), (6, 2), (7, 2), (8, 2)],
            &[(5, 2), (6, 2), (8, 2), (1, 2)],
            &[2, 2, 2, 2],
            0,
        ),
        (
            "all at once",
            &[],
            &[(1, 30), (2, 30), (3, 1), (4, 1)],
            &[4, 2, 1, 1],
            54,
        ),
    ];
    for (what, before, after, places, beyond) in cases {
        let intake = Intake::new(Arc::new(cap(8)));
        intake.follow(&sized(before), Duration::ZERO);
        assert_eq!(intake.follow(&sized(after), Duration::ZERO), beyond, "{what}");
        for ((id, size), places) in after.iter().zip(places) {
            assert_eq!(indexed(&intake, *id), *places, "{what}: {id}");
            assert_eq!(
                intake.is_beyond(&key(*id, 0).worker),
                size > places,
                "{what}: {id}"
            );
        }
    }
}

#[test]
fn ranks_that_hold_nothing_any_more_are_told_once() {
    let seen = |feeds| {
        view(
            [worker(W, Role::Aggregated, Some(card()))],
            &[(1, feeds), (2, None)],
        )
    };
    let mut f = Fixture::with(&seen(None));
    let gone = |f: &Fixture| f.intake.take_gone().into_iter().collect::<Vec<_>>();
    f.tell_all(
        1,
        &[
            event(1, 0, stored(0, &[1])),
            event(1, 1, stored(0, &[1])),
            event(3, 1, stored(0, &[1])),
        ],
    );
    assert_eq!(gone(&f), [], "after a hole it holds what it held");
    f.tell(1, &event(4, 1, Data::Cleared));
    assert_eq!(gone(&f), [key(W, 1)], "it says so");
    assert_eq!(gone(&f), [], "once");
    f.intake.follow(&seen(Some((W, 0))), f.now);
    assert_eq!(gone(&f), [], "the same publisher");
    f.tell(2, &event(1, 1, stored(0, &[1])));
    assert_eq!(
        gone(&f),
        [key(W, 1)],
        "another publisher, registered later, speaks for it"
    );
    f.intake.follow(
        &view(
            [worker(W, Role::Aggregated, Some(card()))],
            &[(1, None), (2, Some((W, 0)))],
        ),
        f.now,
    );
    assert_eq!(gone(&f), [key(W, 0)], "its record names another one");
    f.tell(2, &event(2, 1, Data::Cleared));
    f.intake.follow(&FleetView::default(), f.now);
    assert_eq!(gone(&f), [], "it left");
}

#[test]
fn what_a_rank_held_is_gone_with_its_publisher_also_when_the_next_one_is_late() {
    let gone = |f: &Fixture| f.intake.take_gone().into_iter().collect::<Vec<_>>();
    let seen = |publishers: &[Registered]| view([worker(W, Role::Prefill, Some(card()))], publishers);
    let mut f = Fixture::with(&seen(&[(1, None)]));
    f.tell(1, &event(1, 0, stored(0, &[1])));
    // Its record goes, and its subscription with it, before there is another one.
    f.intake.follow(&seen(&[]), f.now);
    f.intake.end(&mut f.cursors, f.now);
    assert_eq!(gone(&f), [], "the same one may come back");
    f.tell(1, &event(2, 0, stored(0, &[1])));
    assert_eq!(gone(&f), [], "the same one");
    f.intake.end(&mut f.cursors, f.now);
    f.intake.follow(&seen(&[(2, None)]), f.now);
    f.tell(2, &event(1, 0, stored(0, &[1])));
    assert_eq!(gone(&f), [key(W, 0)], "another one speaks");
    f.tell(2, &event(2, 0, stored(0, &[1])));
    assert_eq!(gone(&f), [], "once");

    // A rank that told nothing.
    let mut f = Fixture::with(&seen(&[(1, Some((W, 0)))]));
    f.intake.follow(&seen(&[]), f.now);
    assert_eq!(gone(&f), []);
    f.intake.follow(&seen(&[(2, Some((W, 0)))]), f.now);
    assert_eq!(gone(&f), [key(W, 0)], "its record names another one");
    f.tell(2, &event(1, 0, stored(0, &[1])));
    assert_eq!(gone(&f), [], "once");
}

#[test]
fn places_go_first_to_ranks_that_somebody_tells_of() {
    let one = |id| {
        let mut card = card();
        card.ranks.size = 1;
        worker(id, Role::Aggregated, Some(card))
    };
    let intake = Intake::new(Arc::new(Index::new(Caps {
        ranks: 2,
        ..Caps::default()
    })));
    let placed = || {
        (1..6)
            .filter(|id| intake.has_place(&key(*id, 0)))
            .collect::<Vec<_>>()
    };
    intake.follow(&view([1, 2].map(one), &[]), Duration::ZERO);
    assert_eq!(placed(), [1, 2]);
    let named = |id| (10 + id, Some((id, 0)));
    intake.follow(&view([1, 2, 3].map(one), &[named(2), named(3)]), Duration::ZERO);
    assert_eq!(placed(), [2, 3], "nobody publishes for 1");
    intake.follow(&view([1, 2, 3].map(one), &[1, 2, 3].map(named)), Duration::ZERO);
    assert_eq!(placed(), [2, 3], "whoever is there stays");
    assert!(intake.is_beyond(&key(1, 0).worker));
    // Nobody can say whom this one speaks for.
    let all = [named(2), named(3), (20, None)];
    intake.follow(&view([1, 2, 3].map(one), &all), Duration::ZERO);
    assert_eq!(placed(), [2, 3]);
    // Without a record, but heard.
    let mut cursors = Cursors::new(1);
    let intake = Intake::new(Arc::new(Index::new(Caps {
        ranks: 1,
        ..Caps::default()
    })));
    intake.follow(&view([one(W)], &[]), Duration::ZERO);
    accept(&intake, &mut cursors, 1, &[event(1, 0, stored(0, &[1]))]);
    intake.follow(&view([one(W), one(1)], &[named(1)]), Duration::ZERO);
    assert!(intake.has_place(&key(W, 0)) && !intake.has_place(&key(1, 0)));
}
