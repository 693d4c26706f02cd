//! Entry points of the fuzz targets: what must hold for any bytes. `cargo test` replays the committed corpora
//! through the same functions.

mod kv_index;

pub use kv_index::kv_index;

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::{
    Change, NamespaceMatch, Reducer, Settings,
    kubernetes::{Endpoint as PodEndpoint, Limits as ResourceLimits, Metadata, Owner, Slice, metadata::Join},
    limits::Limits as FleetLimits,
    view::{Artifacts, FleetView},
};
use continuum_messages::{Assembler, Epoch, Published, push::ViewUpdate};
use continuum_prompt::{
    Endpoint,
    artifact::{Checksum, Files},
    readable,
};
use continuum_wire::{
    ActiveLoad, Delivery, Expected, Limits,
    limits::{GREETING_BYTES, KEPT_BUFFER_BYTES, MAX_EVENTS_PER_MESSAGE},
    router_event::{self, Batch, Data},
    zmtp::{Error, Event, Publisher, Subscriber, write_message},
};
use jiff::Timestamp;
use prost::Message as _;

const TOPIC: &[u8] = b"kv_metrics";

/// A peer's bytes: never a panic, bounded memory, and the same events whatever the split.
pub fn zmtp(data: &[u8]) {
    let whole = subscribe(data, data.len().max(1));
    for chunk in [1, 7, 64] {
        assert_eq!(subscribe(data, chunk), whole, "split by {chunk}");
    }
    // The other side reads hostile bytes too, in simulated fleets.
    let mut publisher = Publisher::new();
    let _ended = publisher.push(data);
}

/// One message as frames (each a u16 big-endian length and its bytes), through a connection and the envelope.
pub fn envelope(data: &[u8]) {
    let mut frames = Vec::new();
    let mut rest = data;
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(after.len());
        let (frame, after) = after.split_at(len);
        frames.push(frame);
        rest = after;
    }
    let mut subscriber = Subscriber::new(Limits::KV_METRICS, [TOPIC]);
    let mut bytes = handshake();
    write_message(&frames, &mut bytes);
    let mut input = bytes.as_slice();
    let expected = Expected {
        topic: "kv_metrics",
        first_frame: None,
        publisher: None,
    };
    while let Ok(Some(event)) = subscriber.push(&mut input) {
        let Event::Message(message) = event else { continue };
        if let Ok(delivery) = Delivery::decode(&message, &expected, &Limits::KV_METRICS) {
            assert!(
                delivery.payload.len() <= Limits::KV_METRICS.payload,
                "payload within its limit"
            );
            active_load(&delivery.payload);
        }
    }
}

/// A load payload: what decodes also survives writing and reading again.
pub fn active_load(data: &[u8]) {
    if let Ok(load) = ActiveLoad::decode(data, &Limits::KV_METRICS) {
        let again = ActiveLoad::decode(&load.encode(), &Limits::KV_METRICS);
        assert_eq!(again, Ok(load), "round trip");
    }
}

/// A payload of block events: what decodes survives being written and read again, within its limits.
pub fn router_event(data: &[u8]) {
    let Ok(batch) = Batch::open(data, &Limits::KV_EVENTS) else {
        return;
    };
    let events: Vec<_> = batch.filter_map(Result::ok).collect();
    assert!(
        events.len() <= MAX_EVENTS_PER_MESSAGE as usize,
        "events within their limit"
    );
    for event in &events {
        let blocks = match &event.data {
            Data::Stored(stored) => stored.blocks.len(),
            Data::Removed(hashes) => hashes.len(),
            Data::Cleared => 0,
        };
        assert!(blocks <= data.len(), "a block takes at least a byte");
    }
    let again = router_event::encode(&events);
    let again = Batch::open(&again, &Limits::KV_EVENTS).map(|batch| batch.filter_map(Result::ok).collect());
    assert_eq!(again, Ok(events), "round trip");
}

/// A history of Kubernetes objects, one line an object: `m TAB name TAB uid TAB owner TAB spec.data` (an empty owner is
/// none), `s TAB slice TAB ready pods by comma`, and `m` or `s` with a name alone for one that went. Whatever the history,
/// a list of what is left is no change, and nothing is left when every resource is gone.
pub fn kubernetes(data: &[u8]) {
    let mut join = Join::new(ResourceLimits::default());
    let mut resources: BTreeMap<&str, Metadata> = BTreeMap::new();
    let mut slices: BTreeMap<&str, Slice> = BTreeMap::new();
    let mut shown: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let parts: Vec<&str> = line.splitn(5, '\t').collect();
        let changes = match parts.as_slice() {
            ["m", name, uid, owner, data] => {
                let resource = Metadata {
                    name: (*name).to_owned(),
                    uid: (*uid).to_owned(),
                    owner: (!owner.is_empty()).then(|| Owner {
                        name: (*owner).to_owned(),
                        uid: String::new(),
                    }),
                    data: serde_json::from_str(data).ok(),
                    left_out: false,
                };
                resources.insert(*name, resource.clone());
                join.put_metadata(resource).0
            }
            ["m", name] => {
                resources.remove(name);
                join.remove_metadata(name).0
            }
            ["s", name, pods] => {
                let endpoint = |pod: &str| PodEndpoint {
                    name: Some(pod.to_owned()),
                    uid: None,
                    ready: true,
                };
                let slice = Slice {
                    name: (*name).to_owned(),
                    backend: None,
                    endpoints: pods.split(',').map(endpoint).collect(),
                };
                slices.insert(*name, slice.clone());
                join.put_slice(slice).0
            }
            ["s", name] => {
                slices.remove(name);
                join.remove_slice(name).0
            }
            _ => continue,
        };
        for change in changes {
            match change {
                Change::Put { key, value } => drop(shown.insert(key, value)),
                Change::Delete { key } => drop(shown.remove(&key)),
            }
        }
    }
    let (entries, _) = join.reset(
        resources.values().cloned().collect(),
        slices.into_values().collect(),
        Vec::new(),
    );
    assert_eq!(
        entries.into_iter().collect::<BTreeMap<_, _>>(),
        shown,
        "a list of what is there changes nothing"
    );
    for name in resources.keys() {
        for change in join.remove_metadata(name).0 {
            match change {
                Change::Put { key, value } => drop(shown.insert(key, value)),
                Change::Delete { key } => drop(shown.remove(&key)),
            }
        }
    }
    assert!(shown.is_empty(), "nothing is left of resources that went");
}

/// A history of a registry, one line a change: `key TAB value` puts, `key` alone deletes. Whatever the history,
/// a list of what is left is no change, and nothing is left when every key is gone.
pub fn records(data: &[u8]) {
    let settings = |how| Settings {
        namespaces: vec!["dynamo".into(), "other".into()],
        namespace_match: how,
        limits: FleetLimits::default(),
    };
    for how in [
        NamespaceMatch::Generation,
        NamespaceMatch::Exact,
        NamespaceMatch::Prefix,
    ] {
        let mut reducer = Reducer::new(settings(how));
        let mut left = BTreeMap::new();
        for line in data.split(|byte| *byte == b'\n') {
            let mut parts = line.splitn(2, |byte| *byte == b'\t');
            let key = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
            let change = match parts.next() {
                Some(value) => {
                    left.insert(key.clone(), value.to_vec());
                    Change::Put {
                        key,
                        value: value.to_vec(),
                    }
                }
                None => {
                    left.remove(&key);
                    Change::Delete { key }
                }
            };
            reducer.apply(change, Timestamp::UNIX_EPOCH);
        }
        let before = reducer.view();
        reducer.reset(left.clone(), Timestamp::UNIX_EPOCH);
        assert_eq!(reducer.view(), before, "a list of what is there changes nothing");
        for key in left.into_keys() {
            reducer.apply(Change::Delete { key }, Timestamp::UNIX_EPOCH);
        }
        let FleetView {
            workers, publishers, ..
        } = reducer.view();
        assert!(workers.is_empty() && publishers.is_empty(), "nothing is left");
    }
}

/// A configuration file; see [`continuum_config::fuzz`].
pub fn config(data: &[u8]) {
    continuum_config::fuzz(data);
}

/// Parts of fleet views as a controller pushes them (each a u32 big-endian length and its bytes). What is taken is
/// the view that was announced, and survives being published and assembled again.
pub fn push(data: &[u8]) {
    let mut assembler = Assembler::new();
    let mut rest = data;
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_be_bytes(*len))
            .unwrap_or(usize::MAX)
            .min(after.len());
        let (part, after) = after.split_at(len);
        rest = after;
        let Ok(part) = ViewUpdate::decode(part) else {
            continue;
        };
        let before = assembler.view().clone();
        match assembler.push(part, Timestamp::UNIX_EPOCH) {
            Ok(Some(whole)) => {
                let again = Arc::new(Published::first(whole.view.clone(), Epoch::from_raw([0; 16])));
                let mut other = Assembler::new();
                let wholes = again
                    .full()
                    .filter_map(|part| other.push(part, Timestamp::UNIX_EPOCH).ok().flatten());
                assert_eq!(wholes.count(), 1, "what was taken is taken again");
                assert_eq!(other.view(), &whole.view, "and is the same");
            }
            Ok(None) | Err(_) => assert_eq!(assembler.view(), &before, "what is not whole changes nothing"),
        }
    }
}

/// What a real peer says before its first message.
#[must_use]
pub fn handshake() -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(GREETING_BYTES, 0);
    bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB");
    bytes
}

/// Events of a connection in comparable form, and its end.
fn subscribe(data: &[u8], chunk: usize) -> (Vec<Vec<Vec<u8>>>, Option<Error>) {
    let mut subscriber = Subscriber::new(Limits::KV_METRICS, [TOPIC]);
    let mut messages = Vec::new();
    for mut input in data.chunks(chunk) {
        loop {
            match subscriber.push(&mut input) {
                Ok(None) => break,
                Ok(Some(Event::Message(message))) => {
                    let frames = (0..message.len()).filter_map(|at| message.frame(at));
                    messages.push(frames.map(<[u8]>::to_vec).collect());
                }
                Ok(Some(Event::Ready { .. } | Event::Alive)) => {}
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(input.is_empty(), "all bytes are used");
        assert!(subscriber.capacity() <= KEPT_BUFFER_BYTES, "memory is bounded");
    }
    (messages, None)
}

/// A request's body, and the slots of a card: read or refused, and never a panic. A body is read alike on each route; a
/// card's slots agree with themselves.
pub fn prompt(data: &[u8]) {
    for endpoint in [Endpoint::Chat, Endpoint::Completions] {
        assert_eq!(readable(endpoint, data), readable(endpoint, data));
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut slots = text.splitn(3, '\n').map(Arc::from);
    let artifacts = Artifacts {
        tokenizer: slots.next(),
        prompt_formatter: slots.next(),
        chat_template_file: slots.next(),
    };
    if let Ok(files) = Files::of(&artifacts) {
        assert_eq!(files.0.len(), files.key().checksums().count());
        for file in files.0.iter() {
            assert_eq!(Checksum::parse(&file.checksum.to_string()), Some(file.checksum));
        }
    }
}
