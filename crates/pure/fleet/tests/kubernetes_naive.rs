//! Random histories of Kubernetes objects against a model that keeps the objects and joins all of them from scratch.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use continuum_fleet::{
    Change,
    kubernetes::{Container, Endpoint, Limits, Metadata, Owner, Pod, Slice, metadata::Join},
    pod_hash::pod_hash,
};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json, value::to_raw_value};

const NAMES: [&str; 5] = ["p", "p-c", "p-c-d", "q", "q-c"];
const UIDS: [&str; 3] = ["", "1", "2"];

#[derive(Clone, Debug)]
enum Op {
    Metadata(Object),
    NoMetadata(&'static str),
    Slice(Slice),
    NoSlice(&'static str),
    Pod(Pod),
    NoPod(&'static str),
    /// The objects that are there, listed again; the named ones went unseen.
    List(Vec<&'static str>),
}

#[derive(Clone, Debug)]
struct Object {
    name: &'static str,
    uid: &'static str,
    owner: Option<(&'static str, &'static str)>,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Absent,
    NoObject,
    ForeignId,
    Sound {
        model: Option<u8>,
        /// A channel under a key that other resources carry, too.
        shared: Option<u8>,
        nulls: bool,
    },
}

impl Data {
    /// `None` when it cannot be read.
    fn records(&self, name: &str) -> Option<Records> {
        let id = pod_hash(name);
        let place = format!("d/backend/generate/{}", id.hex());
        let endpoint = |id: u64| json!({"type": "Endpoint", "component": "backend", "endpoint": "generate", "instance_id": id});
        let mut records = BTreeMap::new();
        match self {
            Self::Absent | Self::NoObject => return None,
            Self::ForeignId => {
                records.insert(format!("endpoints {place}"), endpoint(id.raw() + 1));
            }
            Self::Sound { model, shared, .. } => {
                records.insert(format!("endpoints {place}"), endpoint(id.raw()));
                if let Some(model) = model {
                    let card = json!({"type": "Model", "instance_id": id.raw(), "card_json": {"display_name": model.to_string()}});
                    records.insert(format!("model_cards {place}"), card);
                }
                if let Some(port) = shared {
                    let channel = json!({"instance_id": 5, "transport": {"kind": "Zmq", "config": {"endpoint": format!("tcp://h:{port}")}}});
                    records.insert(
                        "event_channels namespace/d/topic/kv_metrics/5".to_owned(),
                        channel,
                    );
                }
            }
        }
        Some(records)
    }

    fn json(&self, name: &str) -> Option<Value> {
        let mut data = match self {
            Self::Absent => return None,
            Self::NoObject => return Some(json!(["endpoints"])),
            Self::Sound { nulls: true, .. } => {
                json!({"endpoints": null, "model_cards": null, "event_channels": null, "event_sources": null})
            }
            Self::Sound { nulls: false, .. } | Self::ForeignId => json!({}),
        };
        for (key, value) in self.records(name).unwrap() {
            let (map, path) = key.split_once(' ').unwrap();
            if data[map].is_null() {
                data[map] = json!({});
            }
            data[map][path] = value;
        }
        Some(data)
    }
}

impl Object {
    fn metadata(&self) -> Metadata {
        Metadata {
            name: self.name.to_owned(),
            uid: self.uid.to_owned(),
            owner: self.owner.map(|(name, uid)| Owner {
                name: name.to_owned(),
                uid: uid.to_owned(),
            }),
            data: self.data.json(self.name).map(|data| to_raw_value(&data).unwrap()),
            left_out: false,
        }
    }
}

/// Bucket and path to value.
type Records = BTreeMap<String, Value>;

#[derive(Default)]
struct Model {
    /// Each with the last records of the same object that could be read.
    objects: BTreeMap<&'static str, (Object, Option<Records>)>,
    slices: BTreeMap<String, Slice>,
    pods: BTreeMap<String, Pod>,
}

impl Model {
    fn put(&mut self, object: Object) {
        let before = self.objects.remove(object.name).filter(|(before, _)| {
            before.uid == object.uid && before.owner.map(|(_, uid)| uid) == object.owner.map(|(_, uid)| uid)
        });
        let records = match &object.data {
            _ if place(&object).is_none() => None,
            Data::ForeignId => None,
            Data::Absent | Data::NoObject => before.and_then(|(_, records)| records),
            Data::Sound { .. } => object.data.records(object.name),
        };
        self.objects.insert(object.name, (object, records));
    }

    fn is_ready(&self, object: &Object) -> bool {
        let Some((pod, container)) = place(object) else {
            return false;
        };
        let uid = object.owner.map_or("", |(_, uid)| uid);
        let agrees = |other: &str| uid.is_empty() || other.is_empty() || uid == other;
        let known = self.pods.get(pod);
        let container_is_ready = |pod: &Pod, name: &str| {
            agrees(&pod.uid) && pod.containers.iter().any(|c| c.name == name && c.ready)
        };
        if let Some(container) = container {
            return known.is_some_and(|pod| container_is_ready(pod, container));
        }
        let siblings = self
            .objects
            .values()
            .any(|(other, _)| matches!(place(other), Some((of, Some(_))) if of == pod));
        if let Some(known) = known
            && (siblings || known.annotations.values().any(|mode| mode == "container"))
        {
            return container_is_ready(known, "main");
        }
        let ready: Vec<&str> = self
            .slices
            .values()
            .filter(|slice| {
                slice
                    .backend
                    .as_deref()
                    .is_none_or(|backend| backend == "kubernetes")
            })
            .flat_map(|slice| &slice.endpoints)
            .filter(|endpoint| endpoint.ready && endpoint.name.as_deref() == Some(pod))
            .map(|endpoint| endpoint.uid.as_deref().unwrap_or_default())
            .collect();
        let mut uids: Vec<&str> = ready.iter().copied().filter(|uid| !uid.is_empty()).collect();
        uids.sort_unstable();
        uids.dedup();
        !ready.is_empty()
            && match uids.as_slice() {
                [] => true,
                [uid] => agrees(uid),
                _ => false,
            }
    }

    fn records(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for (object, records) in self.objects.values().rev() {
            if self.is_ready(object) {
                all.extend(records.iter().flatten().map(|(key, value)| {
                    let (map, path) = key.split_once(' ').unwrap();
                    let bucket = match map {
                        "endpoints" => "v1/instances",
                        "model_cards" => "v1/mdc",
                        _ => "v1/event_channels",
                    };
                    (format!("{bucket}/{path}"), value.clone())
                }));
            }
        }
        all
    }
}

/// Pod and container of a resource; `None`: nobody can tell.
fn place(object: &Object) -> Option<(&str, Option<&str>)> {
    let Some((owner, _)) = object.owner else {
        return Some((object.name, None));
    };
    if owner == object.name {
        return Some((owner, None));
    }
    let container = object.name.strip_prefix(owner)?.strip_prefix('-')?;
    Some((owner, Some(container)))
}

fn data() -> impl Strategy<Value = Data> {
    let sound = (
        prop::option::of(0..2_u8),
        prop::option::of(0..2_u8),
        any::<bool>(),
    );
    prop_oneof![
        1 => Just(Data::Absent),
        1 => Just(Data::NoObject),
        1 => Just(Data::ForeignId),
        6 => sound.prop_map(|(model, shared, nulls)| Data::Sound { model, shared, nulls }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let name = || select(&NAMES[..]);
    let uid = || select(&UIDS[..]);
    let slice = || select(&["s", "t"][..]);
    let owner = prop_oneof![
        2 => Just(None),
        4 => (Just("own"), uid()).prop_map(Some),
        3 => (select(&["p", "q", "p-c"][..]), uid()).prop_map(Some),
    ];
    let metadata = (name(), select(&["a", "b"][..]), owner, data()).prop_map(|(name, uid, owner, data)| {
        let owner = owner.map(|(of, uid)| (if of == "own" { name } else { of }, uid));
        Op::Metadata(Object {
            name,
            uid,
            owner,
            data,
        })
    });
    let endpoint = (
        prop::option::of(name()),
        prop::option::of(uid()),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(name, uid, ready)| Endpoint {
            name: name.map(str::to_owned),
            uid: uid.map(str::to_owned),
            ready,
        });
    let backend = select(&[None, None, Some("kubernetes"), Some("etcd")][..]);
    let put_slice =
        (slice(), backend, prop::collection::vec(endpoint, 0..4)).prop_map(|(name, backend, endpoints)| {
            Op::Slice(Slice {
                name: name.to_owned(),
                backend: backend.map(str::to_owned),
                endpoints,
            })
        });
    let container =
        (select(&["main", "c", "c-d"][..]), prop::bool::weighted(0.7)).prop_map(|(name, ready)| Container {
            name: name.to_owned(),
            ready,
        });
    let mode = prop::bool::weighted(0.3);
    let put_pod = (name(), uid(), mode, prop::collection::vec(container, 0..4)).prop_map(
        |(name, uid, alone, containers)| {
            let mode = (
                "nvidia.com/dynamo-kube-discovery-mode".to_owned(),
                "container".to_owned(),
            );
            Op::Pod(Pod {
                name: name.to_owned(),
                uid: uid.to_owned(),
                annotations: alone.then_some(mode).into_iter().collect(),
                containers,
                ..Pod::default()
            })
        },
    );
    prop_oneof![
        6 => metadata,
        1 => name().prop_map(Op::NoMetadata),
        4 => put_slice,
        1 => slice().prop_map(Op::NoSlice),
        3 => put_pod,
        1 => name().prop_map(Op::NoPod),
        1 => prop::collection::vec(name(), 0..2).prop_map(Op::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_join_agrees_with_one_from_scratch(ops in prop::collection::vec(op(), 1..40)) {
        let mut join = Join::new(Limits::default());
        let mut model = Model::default();
        let mut shown: BTreeMap<String, Value> = BTreeMap::new();
        for op in ops {
            let changes = match op.clone() {
                Op::Metadata(object) => {
                    let (changes, _) = join.put_metadata(object.metadata());
                    model.put(object);
                    changes
                }
                Op::NoMetadata(name) => {
                    model.objects.remove(name);
                    join.remove_metadata(name).0
                }
                Op::Slice(slice) => {
                    model.slices.insert(slice.name.clone(), slice.clone());
                    join.put_slice(slice).0
                }
                Op::NoSlice(name) => {
                    model.slices.remove(name);
                    join.remove_slice(name).0
                }
                Op::Pod(pod) => {
                    model.pods.insert(pod.name.clone(), pod.clone());
                    join.put_pod(pod).0
                }
                Op::NoPod(name) => {
                    model.pods.remove(name);
                    join.remove_pod(name).0
                }
                Op::List(gone) => {
                    model.objects.retain(|name, _| !gone.contains(name));
                    let (entries, _) = join.reset(
                        model.objects.values().map(|(object, _)| object.metadata()).collect(),
                        model.slices.values().cloned().collect(),
                        model.pods.values().cloned().collect(),
                    );
                    shown = entries.into_iter().map(|(key, value)| (key, serde_json::from_slice(&value).unwrap())).collect();
                    Vec::new()
                }
            };
            for change in changes {
                match change {
                    Change::Put { key, value } => {
                        let value: Value = serde_json::from_slice(&value).unwrap();
                        prop_assert_ne!(shown.insert(key, value.clone()), Some(value), "said twice after {:?}", op);
                    }
                    Change::Delete { key } => {
                        prop_assert!(shown.remove(&key).is_some(), "deleted twice after {:?}", op);
                    }
                }
            }
            prop_assert_eq!(&shown, &model.records(), "after {:?}", op);
            let of_containers = model.objects.values().any(|(object, _)| matches!(place(object), Some((_, Some(_)))));
            prop_assert_eq!(join.needs_pods(), of_containers);
        }
    }
}
