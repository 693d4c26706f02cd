use std::sync::Arc;

use continuum_fleet::{
    Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, PublisherId, Rank, WorkerKey},
    view::{
        Artifacts, Capacity, Card, KvTransfer, KvTransferEnforcement, NameKind, Publisher, PublisherKey,
        RankRange, Role, ServedName, Topic, Transport,
    },
};
use proptest::prelude::*;

use super::*;
use crate::{Epoch, Published, limits::PART_BYTES};

const EPOCH: Epoch = Epoch::from_raw([7; 16]);

/// One change of a fleet, small enough that histories meet the same entries again.
#[derive(Clone, Debug)]
enum Op {
    Put {
        id: u64,
        card: Option<u8>,
        role: u8,
    },
    Remove {
        id: u64,
    },
    PutPublisher {
        id: u64,
        kind: u8,
    },
    RemovePublisher {
        id: u64,
    },
    Capped {
        records: u64,
    },
    /// The router takes what is newest.
    Send,
    /// The router comes back without a view.
    Full,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..12_u64, proptest::option::of(0..4_u8), 0..5_u8).prop_map(|(id, card, role)| Op::Put { id, card, role }),
        2 => (0..12_u64).prop_map(|id| Op::Remove { id }),
        2 => (0..12_u64, 0..4_u8).prop_map(|(id, kind)| Op::PutPublisher { id, kind }),
        1 => (0..12_u64).prop_map(|id| Op::RemovePublisher { id }),
        1 => (0..3_u64).prop_map(|records| Op::Capped { records }),
        3 => Just(Op::Send),
        1 => Just(Op::Full),
    ]
}

fn card(kind: u8, padding: usize) -> Arc<Card> {
    Arc::new(Card {
        display_name: Some("base".into()),
        aliases: vec!["other".into()],
        worker_type: kind.is_multiple_of(2).then_some(Role::Decode),
        needs: vec![vec![Role::Prefill], vec![]],
        block_size: Some(u32::from(kind) + 1),
        ranks: RankRange {
            start: u32::MAX,
            size: 1,
        },
        capacity: Capacity {
            total_kv_blocks: Some(9),
            max_num_batched_tokens: None,
            max_num_seqs: Some(0),
        },
        context_length: Some(4096),
        topology_domains: [
            ("zone".to_owned(), "a".to_owned()),
            ("rack".to_owned(), "b".to_owned()),
        ]
        .into(),
        kv_transfer: Some(KvTransfer {
            domain: "zone".to_owned(),
            enforcement: if kind == 0 {
                KvTransferEnforcement::Required
            } else {
                KvTransferEnforcement::Preferred { weight: 0.5 }
            },
        }),
        has_router_config: kind == 1,
        has_disaggregated_endpoint: kind == 2,
        enable_eagle: kind == 3,
        kv_event_source_mode: Some("mode".to_owned()),
        kv_state_namespace: (kind == 2).then(|| "elsewhere".to_owned()),
        artifacts: Artifacts {
            tokenizer: Some("t".repeat(padding).into()),
            prompt_formatter: None,
            chat_template_file: Some("c".into()),
        },
        json: None,
    })
}

fn worker(id: u64, card: Option<Arc<Card>>, role: u8) -> Arc<Worker> {
    let generation = match id % 4 {
        0 => Generation::Base,
        1 => Generation::Legacy,
        2 => Generation::Hash(0xfeed),
        _ => Generation::Suffix("base".into()),
    };
    Arc::new(Worker {
        key: WorkerKey {
            namespace: Namespace::from(if id.is_multiple_of(2) {
                "prod"
            } else {
                "prod-legacy"
            }),
            instance: InstanceId::new(u64::MAX - id),
        },
        graph: Graph::from("prod"),
        component: "backend".into(),
        endpoint: "generate".into(),
        generation,
        role: Role::ALL[usize::from(role)],
        names: [
            ("base", NameKind::Base),
            ("a", NameKind::Alias),
            ("l", NameKind::Adapter),
        ]
        .map(|(name, kind)| ServedName {
            name: ModelName::from(name),
            kind,
        })
        .into(),
        card,
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    })
}

fn publisher(id: u64, kind: u8) -> Arc<Publisher> {
    Arc::new(Publisher {
        key: PublisherKey {
            topic: if id.is_multiple_of(2) {
                Topic::KvMetrics
            } else {
                Topic::KvEvents
            },
            id: PublisherId::new(id),
        },
        namespace: Namespace::from("prod"),
        graph: Graph::from("prod"),
        component: (kind == 1).then(|| "backend".into()),
        transport: if kind == 2 {
            Transport::ZmqBroker {
                xpub_endpoints: ["tcp://10.0.0.1:1".to_owned(), "tcp://10.0.0.2:1".to_owned()].into(),
            }
        } else {
            Transport::Zmq {
                endpoint: format!("tcp://10.0.0.1:{kind}").into(),
            }
        },
        feeds: (kind == 3).then(|| (InstanceId::new(id), Rank(3))),
    })
}

fn apply(view: &mut FleetView, op: &Op) {
    match op {
        Op::Put { id, card: kind, role } => {
            // A card of its own each time: sharing is by content.
            let worker = worker(*id, kind.map(|kind| card(kind, 1)), *role);
            view.workers.insert(worker.key.clone(), worker);
        }
        Op::Remove { id } => {
            view.workers.remove(&worker(*id, None, 0).key);
        }
        Op::PutPublisher { id, kind } => {
            let publisher = publisher(*id, *kind);
            view.publishers.insert(publisher.key, publisher);
        }
        Op::RemovePublisher { id } => {
            view.publishers.remove(&publisher(*id, 0).key);
        }
        Op::Capped { records } => view.capped.records = *records,
        Op::Send | Op::Full => {}
    }
}

fn push_all(
    to: &mut Assembler,
    parts: impl IntoIterator<Item = push::ViewUpdate>,
) -> Result<Option<Assembled>, Error> {
    let mut whole = None;
    for part in parts {
        assert!(whole.is_none(), "the last part is the last");
        whole = to.push(part, Timestamp::UNIX_EPOCH)?;
    }
    Ok(whole)
}

proptest! {
    /// Whatever happened and whatever was skipped, the router has what the controller has, and names it alike.
    #[test]
    fn what_is_assembled_is_what_was_published(ops in proptest::collection::vec(op(), 1..60)) {
        let mut view = FleetView::default();
        let mut newest = Arc::new(Published::first(view.clone(), EPOCH));
        let mut router = Assembler::new();
        let mut has: Option<Arc<Published>> = None;
        for op in &ops {
            apply(&mut view, op);
            let next = newest.next(view.clone());
            prop_assert_eq!(next.id == newest.id, next.view == newest.view, "an identity is a content");
            prop_assert_eq!(next.id.digest, Published::first(view.clone(), EPOCH).id.digest, "whatever the history");
            newest = Arc::new(next);
            let whole = match (op, &has) {
                (Op::Full, _) | (Op::Send, None) => push_all(&mut router, newest.full()),
                (Op::Send, Some(base)) => push_all(&mut router, newest.since(base)),
                (Op::Put { .. } | Op::Remove { .. } | Op::PutPublisher { .. } | Op::RemovePublisher { .. } | Op::Capped { .. }, _) => continue,
            };
            let whole = whole.unwrap().unwrap();
            prop_assert_eq!(&whole.view, &view);
            prop_assert_eq!(whole.id, newest.id);
            prop_assert_eq!(router.id(), Some(newest.id));
            has = Some(Arc::clone(&newest));
        }
        // Nothing is kept of what is gone.
        if has.is_some() {
            let used: std::collections::BTreeSet<_> = router.now.workers.values().filter_map(|entry| entry.card).collect();
            prop_assert_eq!(router.now.cards.len(), used.len());
        }
    }
}

fn fleet(workers: u64, padding: usize) -> FleetView {
    let mut view = FleetView::default();
    for id in 0..workers {
        let kind = u8::try_from(id % 3).unwrap();
        let worker = worker(id, Some(card(kind, padding)), 1);
        view.workers.insert(worker.key.clone(), worker);
        let publisher = publisher(id, kind);
        view.publishers.insert(publisher.key, publisher);
    }
    view
}

fn published(view: FleetView) -> Arc<Published> {
    Arc::new(Published::first(view, EPOCH))
}

#[test]
fn a_large_view_comes_in_parts_of_a_bounded_size() {
    let large = published(fleet(4_000, 8_000));
    let parts: Vec<_> = large.full().collect();
    assert!(parts.len() > 3, "{} parts", parts.len());
    for part in &parts {
        let bytes = prost::Message::encoded_len(part);
        assert!(bytes <= PART_BYTES + 16 * 1024, "{bytes} bytes");
    }
    let whole = push_all(&mut Assembler::new(), parts).unwrap().unwrap();
    assert!(whole.full);
    assert_eq!(whole.view, large.view);
    let cards: std::collections::BTreeSet<_> = whole
        .view
        .workers
        .values()
        .filter_map(|worker| worker.card.as_ref().map(Arc::as_ptr))
        .collect();
    assert_eq!(cards.len(), 3, "equal cards are one");
}

#[test]
fn what_did_not_change_is_neither_sent_nor_made_again() {
    let before = published(fleet(1_000, 10));
    let mut view = before.view.clone();
    let changed = worker(5, None, 2);
    view.workers.insert(changed.key.clone(), changed);
    let after = Arc::new(before.next(view));
    let mut router = Assembler::new();
    let old = push_all(&mut router, before.full()).unwrap().unwrap();
    let parts = after.since(&before);
    assert_eq!(
        (parts.len(), parts[0].workers.len(), parts[0].cards.len()),
        (1, 1, 0)
    );
    let new = push_all(&mut router, parts).unwrap().unwrap();
    assert!(!new.full);
    let shared = old
        .view
        .workers
        .iter()
        .filter(|(key, worker)| Arc::ptr_eq(worker, &new.view.workers[*key]));
    assert_eq!(shared.count(), 999);
}

#[test]
fn a_difference_to_another_view_is_refused_once_and_a_full_one_heals() {
    let (a, b) = (published(fleet(3, 1)), published(fleet(5, 1)));
    let c = Arc::new(b.next(fleet(6, 1)));
    let d = Arc::new(c.next(fleet(7, 1)));
    let mut router = Assembler::new();
    push_all(&mut router, a.full()).unwrap();
    assert_eq!(push_all(&mut router, c.since(&b)).unwrap_err(), Error::Base);
    assert_eq!(router.view(), &a.view, "the view before stays");
    assert!(push_all(&mut router, d.since(&c)).unwrap().is_none(), "said once");
    assert_eq!(push_all(&mut router, d.full()).unwrap().unwrap().view, d.view);
    assert_eq!(
        push_all(&mut router, c.since(&b)).unwrap_err(),
        Error::Base,
        "and again later"
    );
}

#[test]
fn an_equal_content_of_another_replica_is_a_base() {
    let other = Arc::new(Published::first(fleet(3, 1), Epoch::from_raw([9; 16])));
    let ours = published(fleet(3, 1));
    let next = Arc::new(ours.next(fleet(4, 1)));
    let mut router = Assembler::new();
    push_all(&mut router, other.full()).unwrap();
    assert!(router.rename(ours.id));
    assert!(!router.rename(next.id));
    assert_eq!(router.id(), Some(ours.id));
    assert_eq!(
        push_all(&mut router, next.since(&ours)).unwrap().unwrap().view,
        next.view
    );
}

#[test]
fn what_is_not_a_view_is_refused_and_the_rest_of_it_passed_over() {
    let good = published(fleet(1_500, 100));
    let parts: Vec<_> = good.full().collect();
    assert!(parts.len() > 1);
    let with = |at: usize, change: &dyn Fn(&mut push::ViewUpdate)| {
        let mut parts = parts.clone();
        change(&mut parts[at]);
        parts
    };
    let last = parts.len() - 1;
    let cases: Vec<(Vec<push::ViewUpdate>, Error)> = vec![
        (
            with(0, &|part| part.view = None),
            Malformed::Missing("view").into(),
        ),
        (
            with(0, &|part| part.view.as_mut().unwrap().digest = Bytes::new()),
            Malformed::Value("identity").into(),
        ),
        (with(0, &|part| part.cards.clear()), Error::Card),
        (
            with(0, &|part| part.workers[0] = Bytes::from_static(b"\xff")),
            Malformed::Bytes.into(),
        ),
        (
            with(0, &|part| part.workers[0] = Bytes::new()),
            Malformed::Missing("worker key").into(),
        ),
        (
            with(0, &|part| part.cards[0] = Bytes::new()),
            Malformed::Value("ranks").into(),
        ),
        (
            with(0, &|part| part.cards[0] = vec![0; 1 << 20].into()),
            Malformed::TooLong("card").into(),
        ),
        (
            with(last, &|part| part.capped.as_mut().unwrap().records = 1),
            Error::Digest,
        ),
        (
            with(last, &|part| {
                part.publishers.pop();
            }),
            Error::Digest,
        ),
        (
            with(last, &|part| part.base = part.view.clone()),
            Error::Interleaved,
        ),
    ];
    for (parts, expected) in cases {
        let mut router = Assembler::new();
        let mut outcomes = parts
            .into_iter()
            .map(|part| router.push(part, Timestamp::UNIX_EPOCH));
        assert_eq!(outcomes.find_map(Result::err), Some(expected));
        outcomes.for_each(drop);
        assert_eq!((router.id(), router.view()), (None, &FleetView::default()));
        let whole = push_all(&mut router, good.full()).unwrap().unwrap();
        assert_eq!(whole.view, good.view, "the next whole view is taken");
    }
}

/// A newer controller may know more roles, topics and kinds of names. What is of them is not used, and the rest is.
#[test]
fn words_that_this_version_does_not_know_cost_no_view() {
    use prost::Message as _;
    const NEWER: i32 = 77;
    let known = published(fleet(4, 1));
    let mut parts: Vec<_> = known.full().collect();
    let [part] = parts.as_mut_slice() else {
        panic!("one part");
    };
    let mut new = push::Worker::decode(part.workers[0].as_ref()).unwrap();
    new.role = NEWER;
    new.names[1].kind = NEWER;
    part.workers[0] = new.encode_to_vec().into();
    let mut stranger = push::Publisher::decode(part.publishers[0].as_ref()).unwrap();
    stranger.key.as_mut().unwrap().topic = NEWER;
    // Last, as the newer controller has it; it sends whatever it likes there.
    stranger.endpoint = String::new();
    part.publishers.push(stranger.encode_to_vec().into());
    let name = |workers: &[Bytes], publishers: &[Bytes]| {
        let digests = |all: &[Bytes]| all.iter().map(|bytes| Digest::of(bytes)).collect::<Vec<_>>();
        let digest = root(
            digests(workers).iter(),
            digests(publishers).iter(),
            Capped::default(),
        );
        ViewId { digest, ..known.id }
    };
    let id = name(&part.workers, &part.publishers);
    part.view = Some(id.into());
    let (workers, publishers) = (part.workers.clone(), part.publishers.clone());
    let mut router = Assembler::new();
    let whole = push_all(&mut router, parts).unwrap().unwrap();
    assert_eq!((whole.view.workers.len(), whole.view.publishers.len()), (4, 4));
    let (_, changed) = whole
        .view
        .workers
        .iter()
        .find(|(_, worker)| worker.role == Role::Unknown)
        .unwrap();
    let names: Vec<_> = changed.names.iter().map(|name| name.name.as_str()).collect();
    assert_eq!(names, ["base", "l"]);
    // And such a publisher goes again.
    let without = name(&workers, &publishers[..4]);
    let gone = push::ViewUpdate {
        view: Some(without.into()),
        base: Some(id.into()),
        last: true,
        removed_publishers: vec![stranger.key.unwrap()],
        ..push::ViewUpdate::default()
    };
    assert_eq!(push_all(&mut router, [gone]).unwrap().unwrap().id, without);
}

#[test]
fn an_update_has_a_budget() {
    let id = published(fleet(1, 1)).id;
    let part = |cards: Vec<Bytes>| push::ViewUpdate {
        view: Some(id.into()),
        cards,
        ..push::ViewUpdate::default()
    };
    let mut router = Assembler::new();
    assert_eq!(
        router.push(part(vec![]), Timestamp::UNIX_EPOCH).unwrap_err(),
        Malformed::Missing("content of a part").into(),
        "parts without content could go on for ever"
    );
    router.interrupt();
    let mut many = part(vec![]);
    many.removed_workers = vec![push::WorkerKey::default(); MAX_UPDATE_BYTES / MAX_KEY_BYTES + 1];
    assert_eq!(
        router.push(many, Timestamp::UNIX_EPOCH).unwrap_err(),
        Error::Cap("bytes")
    );
}

#[test]
fn a_worker_keeps_the_time_that_it_was_first_seen() {
    let (a, later) = (published(fleet(2, 1)), Timestamp::from_second(60).unwrap());
    let mut router = Assembler::new();
    push_all(&mut router, a.full()).unwrap();
    let mut view = a.view.clone();
    let changed = worker(0, None, 2);
    view.workers.insert(changed.key.clone(), Arc::clone(&changed));
    for part in a.next(view).since(&a) {
        router.push(part, later).unwrap();
    }
    let seen = router.view().workers[&changed.key].seen;
    assert_eq!((seen.first, seen.updated), (Timestamp::UNIX_EPOCH, later));
}
