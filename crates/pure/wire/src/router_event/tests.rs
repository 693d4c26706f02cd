use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;

use super::*;
use crate::active_load::tests::hex;

fn decode(payload: &[u8]) -> Result<Vec<Result<RouterEvent, Refusal>>, Refusal> {
    Batch::open(payload, &Limits::KV_EVENTS).map(Iterator::collect)
}

fn all(payload: &[u8]) -> Vec<RouterEvent> {
    decode(payload).unwrap().into_iter().map(Result::unwrap).collect()
}

fn cleared(worker_id: u64) -> RouterEvent {
    RouterEvent {
        worker_id,
        tier: Tier::Device,
        domain: Domain::Legacy,
        event_id: 1,
        rank: 0,
        data: Data::Cleared,
    }
}

/// What a future, or a careless, writer may send: every field is free.
#[derive(Clone, Default, Serialize)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    residency_domain: Option<Option<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_source: Option<BTreeMap<&'static str, Vec<u32>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<WrittenEvent>,
}

#[derive(Clone, Default, Serialize)]
struct WrittenEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<WrittenData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dp_rank: Option<u64>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "snake_case")]
enum WrittenData {
    Stored {
        parent_hash: Option<i64>,
        blocks: Vec<WrittenBlock>,
    },
    Removed {
        block_hashes: Vec<i64>,
    },
    Cleared,
    Moved(u8),
}

#[derive(Clone, Default, Serialize)]
struct WrittenBlock {
    block_hash: i64,
    tokens_hash: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mm_extra_info: Option<Option<Media>>,
}

fn written() -> Written {
    Written {
        worker_id: Some(7),
        event: Some(WrittenEvent {
            event_id: Some(1),
            data: Some(WrittenData::Cleared),
            dp_rank: None,
        }),
        ..Written::default()
    }
}

fn with_data(data: WrittenData) -> Written {
    let mut written = written();
    written.event.as_mut().unwrap().data = Some(data);
    written
}

#[derive(Clone, Serialize)]
struct Media {
    mm_objects: Vec<BTreeMap<&'static str, u64>>,
}

#[test]
fn missing_fields_have_their_old_meaning_and_unknown_ones_are_passed_over() {
    let newest = Written {
        session_id: Some("a conversation"),
        residency_domain: Some(Some("worker")),
        state_source: Some([("owner", vec![1, 2])].into()),
        ..written()
    };
    let payload = rmp_serde::to_vec_named(&[written(), newest]).unwrap();
    let worker = RouterEvent {
        domain: Domain::Worker,
        ..cleared(7)
    };
    assert_eq!(all(&payload), [cleared(7), worker]);
}

#[test]
fn words_of_tiers_and_domains() {
    for (word, tier) in [
        ("device", Tier::Device),
        ("host_pinned", Tier::HostPinned),
        ("disk", Tier::Disk),
        ("external", Tier::External),
        ("hologram", Tier::External),
    ] {
        let storage_tier = Some(word);
        let payload = rmp_serde::to_vec_named(&[Written {
            storage_tier,
            ..written()
        }])
        .unwrap();
        assert_eq!(all(&payload)[0].tier, tier, "{word}");
    }
    for (word, domain) in [
        (None, Domain::Legacy),
        (Some(Some("worker")), Domain::Worker),
        (Some(Some("cache_owner")), Domain::CacheOwner),
        (Some(Some("future_domain")), Domain::Unknown),
        (Some(None), Domain::Unknown),
    ] {
        let residency_domain = word;
        let payload = rmp_serde::to_vec_named(&[Written {
            residency_domain,
            ..written()
        }])
        .unwrap();
        assert_eq!(all(&payload)[0].domain, domain, "{word:?}");
    }
}

#[test]
fn negative_hashes_are_taken_by_their_bits() {
    let block = WrittenBlock {
        block_hash: -2,
        tokens_hash: u64::MAX,
        mm_extra_info: Some(None),
    };
    let media = WrittenBlock {
        mm_extra_info: Some(Some(Media {
            mm_objects: vec![[("mm_hash", 5)].into()],
        })),
        ..block.clone()
    };
    let stored = WrittenData::Stored {
        parent_hash: Some(i64::MIN),
        blocks: vec![block, media],
    };
    let removed = WrittenData::Removed {
        block_hashes: vec![-1, 1],
    };
    let payload = rmp_serde::to_vec_named(&[with_data(stored), with_data(removed)]).unwrap();
    let block = |multimodal| Block {
        hash: u64::MAX - 1,
        tokens: u64::MAX,
        multimodal,
    };
    assert_eq!(
        all(&payload)
            .into_iter()
            .map(|event| event.data)
            .collect::<Vec<_>>(),
        [
            Data::Stored(Stored {
                parent: Some(1 << 63),
                blocks: vec![block(false), block(true)]
            }),
            Data::Removed(vec![u64::MAX, 1]),
        ]
    );
}

#[test]
fn an_event_without_meaning_is_refused_alone() {
    let without = |change: fn(&mut Written)| {
        let mut written = written();
        change(&mut written);
        written
    };
    for (what, bad) in [
        ("worker", without(|w| w.worker_id = None)),
        ("negative worker", without(|w| w.worker_id = Some(-1))),
        ("event", without(|w| w.event = None)),
        ("id", without(|w| w.event.as_mut().unwrap().event_id = None)),
        ("data", without(|w| w.event.as_mut().unwrap().data = None)),
        (
            "rank beyond 32 bits",
            without(|w| w.event.as_mut().unwrap().dp_rank = Some(1 << 32)),
        ),
        ("unknown data", with_data(WrittenData::Moved(1))),
    ] {
        let payload = rmp_serde::to_vec_named(&[written(), bad, written()]).unwrap();
        assert_eq!(
            decode(&payload),
            Ok(vec![Ok(cleared(7)), Err(Refusal::Malformed), Ok(cleared(7))]),
            "{what}"
        );
    }
    let twice = hex("82a9776f726b65725f696401a9776f726b65725f696401");
    let payload = [&[0x92], &*twice, &rmp_serde::to_vec_named(&written()).unwrap()].concat();
    assert_eq!(
        decode(&payload),
        Ok(vec![Err(Refusal::Malformed), Ok(cleared(7))])
    );
}

#[test]
fn a_batch_that_breaks_off_keeps_what_came_before() {
    let payload = rmp_serde::to_vec_named(&[written(), written(), written()]).unwrap();
    let event = (payload.len() - 1) / 3;
    for cut in 1..=event {
        assert_eq!(
            decode(&payload[..payload.len() - cut]),
            Ok(vec![Ok(cleared(7)), Ok(cleared(7)), Err(Refusal::Malformed)]),
            "{cut}"
        );
    }
}

#[test]
fn counts_are_judged_before_memory_is_taken() {
    assert_eq!(decode(&hex("ddffffffff")), Err(Refusal::Malformed));
    assert_eq!(decode(&hex("80")), Err(Refusal::Malformed));
    assert_eq!(decode(&hex("90")), Ok(Vec::new()));
    let many = vec![written(); 1025];
    assert_eq!(
        decode(&rmp_serde::to_vec_named(&many[1..]).unwrap())
            .unwrap()
            .len(),
        1024
    );
    assert_eq!(
        decode(&rmp_serde::to_vec_named(&many).unwrap()),
        Err(Refusal::Oversized)
    );
    // A chain that claims four thousand million blocks, and one list of hashes that does.
    for lie in [
        "a673746f72656481a6626c6f636b73ddffffffff",
        "a772656d6f76656481ac626c6f636b5f686173686573ddffffffff",
    ] {
        let head = "9182a9776f726b65725f696407a56576656e7482a86576656e745f696401a46461746181";
        assert_eq!(
            decode(&hex(&format!("{head}{lie}"))),
            Ok(vec![Err(Refusal::Malformed)])
        );
    }
    let deep = [&hex("9181a178")[..], &[0x91; 64], &[0xc0]].concat();
    assert_eq!(decode(&deep), Ok(vec![Err(Refusal::Malformed)]));
}

#[test]
fn one_event_is_as_long_as_its_prompt() {
    let chain = |blocks: u32| {
        let blocks = (0..u64::from(blocks))
            .map(|n| Block {
                hash: u64::MAX - n,
                tokens: u64::MAX / 3 - n,
                multimodal: false,
            })
            .collect();
        RouterEvent {
            data: Data::Stored(Stored { parent: None, blocks }),
            ..cleared(7)
        }
    };
    let long = [chain(20_000)];
    let payload = encode(&long);
    assert!(payload.len() > 1 << 20, "{}", payload.len());
    assert_eq!(all(&payload), long);
    let longest = [chain(MAX_BLOCKS_PER_EVENT), cleared(7)];
    let payload = encode(&longest);
    assert!(payload.len() < Limits::KV_EVENTS.payload, "{}", payload.len());
    assert_eq!(all(&payload), longest);
    assert_eq!(
        decode(&encode(&[chain(MAX_BLOCKS_PER_EVENT + 1), cleared(7)])),
        Ok(vec![Err(Refusal::Oversized), Ok(cleared(7))])
    );
}

fn events() -> impl Strategy<Value = Vec<RouterEvent>> {
    let block = (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(hash, tokens, multimodal)| Block {
        hash,
        tokens,
        multimodal,
    });
    let data = prop_oneof![
        (any::<Option<u64>>(), prop::collection::vec(block, 0..40))
            .prop_map(|(parent, blocks)| Data::Stored(Stored { parent, blocks })),
        prop::collection::vec(any::<u64>(), 0..40).prop_map(Data::Removed),
        Just(Data::Cleared),
    ];
    let domain = prop::sample::select(vec![
        Domain::Legacy,
        Domain::Worker,
        Domain::CacheOwner,
        Domain::Unknown,
    ]);
    let tier = prop::sample::select(Tier::ALL.to_vec());
    let event = (any::<u64>(), tier, domain, any::<u64>(), any::<u32>(), data).prop_map(
        |(worker_id, tier, domain, event_id, rank, data)| RouterEvent {
            worker_id,
            tier,
            domain,
            event_id,
            rank,
            data,
        },
    );
    prop::collection::vec(event, 0..20)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(events in events()) {
        prop_assert_eq!(all(&encode(&events)), events);
    }

    #[test]
    fn damage_costs_no_more_than_the_events_behind_it(
        events in events(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut payload = encode(&events);
        let at = at.index(payload.len());
        // Which event the damaged byte belongs to.
        let intact = (0..=events.len()).rev().find(|n| encode(&events[..*n]).len() + 2 <= at).unwrap_or(0);
        payload[at] = byte;
        if at >= 3 && let Ok(read) = decode(&payload) {
            let read: Vec<_> = read.into_iter().take(intact).map(Result::unwrap).collect();
            prop_assert_eq!(&read[..], &events[..intact]);
        }
    }
}
