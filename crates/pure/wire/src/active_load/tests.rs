use serde::Serialize;

use super::*;

/// `ActiveLoad{1736491, 0, nil, nil, 777}` as rmp-serde writes it, by name and by position.
const BY_NAME: &str = "85a9776f726b65725f6964ce001a7f2ba764705f72616e6b00b46163746976655f6465636f64655f626c6f636b73c0\
                       b56163746976655f70726566696c6c5f746f6b656e73c0ae6b765f757365645f626c6f636b73cd0309";
const BY_POSITION: &str = "95ce001a7f2b00c0c0cd0309";

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

pub(crate) fn sample() -> ActiveLoad {
    ActiveLoad {
        worker: InstanceId::new(1_736_491),
        rank: Rank(0),
        active_decode_blocks: None,
        active_prefill_tokens: None,
        kv_used_blocks: Some(777),
    }
}

fn decode(bytes: &[u8]) -> Result<ActiveLoad, Refusal> {
    ActiveLoad::decode(bytes, &Limits::KV_METRICS)
}

#[test]
fn both_spellings_of_the_contract_decode() {
    assert_eq!(decode(&hex(BY_NAME)), Ok(sample()));
    assert_eq!(decode(&hex(BY_POSITION)), Ok(sample()));
    assert_eq!(sample().encode(), hex(BY_NAME));
}

#[derive(Serialize)]
struct Older {
    worker_id: u64,
    active_decode_blocks: Option<u64>,
}

#[derive(Serialize)]
struct Newer {
    taints: Vec<(String, Option<f64>)>,
    kv_used_blocks: Option<u64>,
    worker_id: u64,
    dp_rank: u32,
    nested: Option<std::collections::BTreeMap<String, Vec<u8>>>,
    active_decode_blocks: Option<u64>,
    active_prefill_tokens: Option<u64>,
}

#[test]
fn missing_fields_are_nothing_and_unknown_fields_are_passed_over() {
    let older = rmp_serde::to_vec_named(&Older {
        worker_id: 7,
        active_decode_blocks: Some(3),
    })
    .unwrap();
    let read = decode(&older).unwrap();
    assert_eq!(
        (read.worker, read.rank, read.active_decode_blocks),
        (InstanceId::new(7), Rank(0), Some(3))
    );
    assert_eq!(read.kv_used_blocks, None);

    let newer = Newer {
        taints: vec![("gpu".to_owned(), Some(0.5)), ("x".repeat(300), None)],
        kv_used_blocks: None,
        worker_id: u64::MAX,
        dp_rank: u32::MAX,
        nested: Some([("k".to_owned(), vec![1, 2, 255])].into()),
        active_decode_blocks: Some(0),
        active_prefill_tokens: Some(u64::MAX),
    };
    let read = decode(&rmp_serde::to_vec_named(&newer).unwrap()).unwrap();
    assert_eq!(
        (read.worker, read.rank),
        (InstanceId::new(u64::MAX), Rank(u32::MAX))
    );
    assert_eq!(
        (read.active_decode_blocks, read.active_prefill_tokens),
        (Some(0), Some(u64::MAX))
    );

    // By position, shorter and longer than today.
    assert_eq!(decode(&hex("9107")).unwrap().worker, InstanceId::new(7));
    assert_eq!(
        decode(&hex("96070102030481a161c0")).unwrap().kv_used_blocks,
        Some(4)
    );
    // Bytes behind the value.
    assert_eq!(decode(&[hex(BY_POSITION), vec![0xff; 9]].concat()), Ok(sample()));
}

#[test]
fn hostile_payloads_are_malformed() {
    let deep = [hex("82a9776f726b65725f696407a178"), vec![0x91; 2_000], vec![0xc0]].concat();
    let table: [(&str, Vec<u8>); 14] = [
        ("empty", vec![]),
        ("reserved marker", hex("c1")),
        ("nil", hex("c0")),
        ("number", hex("07")),
        ("no worker", hex("80")),
        ("no worker by position", hex("90")),
        ("nil worker", hex("91c0")),
        ("negative worker", hex("91ff")),
        ("float worker", hex("91ca3f800000")),
        ("rank above 32 bits", hex("9207cf0000000100000000")),
        ("map that claims 2^32 - 1 entries", hex("dfffffffff")),
        ("array that claims 2^32 - 1 entries", hex("ddffffffff07")),
        ("key twice", hex("82a9776f726b65725f696407a9776f726b65725f696408")),
        ("nesting of 2,000", deep),
    ];
    for (case, bytes) in table {
        assert_eq!(decode(&bytes), Err(Refusal::Malformed), "{case}");
    }
    let whole = hex(BY_NAME);
    for end in 0..whole.len() {
        assert_eq!(decode(&whole[..end]), Err(Refusal::Malformed), "cut at {end}");
    }
}

proptest::proptest! {
    #[test]
    fn what_is_written_is_read(
        worker: u64, rank: u32, decode_blocks: Option<u64>, prefill: Option<u64>, used: Option<u64>,
    ) {
        let sample = ActiveLoad {
            worker: InstanceId::new(worker),
            rank: Rank(rank),
            active_decode_blocks: decode_blocks,
            active_prefill_tokens: prefill,
            kv_used_blocks: used,
        };
        proptest::prop_assert_eq!(decode(&sample.encode()), Ok(sample));
    }
}
