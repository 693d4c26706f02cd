//! Whatever is lost, repeated, reordered, or published by somebody else: the index never knows more of a rank than its
//! publisher held at the event that was read last.

use std::collections::BTreeSet;

use proptest::{prelude::*, sample::Index as Any};

use super::*;

/// Blocks that a worker holds, by the tokens up to each.
type Held = BTreeSet<Vec<u64>>;

/// A worker's own cache, and all that it published.
#[derive(Clone, Debug, Default)]
struct Stream {
    events: Vec<Data>,
    /// What it held after each event; the first one is before any.
    states: Vec<Held>,
}

#[derive(Clone, Debug)]
enum Act {
    Store(Any, Vec<u64>),
    Remove(Any),
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<Any>(), prop::collection::vec(1..3_u64, 1..4)).prop_map(|(at, path)| Act::Store(at, path)),
        3 => any::<Any>().prop_map(Act::Remove),
        1 => Just(Act::Clear),
    ]
}

fn stream() -> impl Strategy<Value = Stream> {
    prop::collection::vec(act(), 1..40).prop_map(|acts| {
        let mut held = Held::new();
        let mut stream = Stream {
            events: Vec::new(),
            states: vec![held.clone()],
        };
        for act in acts {
            // A worker publishes of blocks whose parents it holds.
            let reachable: Vec<_> = [Vec::new()]
                .into_iter()
                .chain(held.iter().filter(|path| whole(&held, path)).cloned())
                .collect();
            let data = match act {
                Act::Store(at, more) => {
                    let from = at.get(&reachable);
                    let path = [from.clone(), more].concat();
                    held.extend((from.len() + 1..=path.len()).map(|end| path[..end].to_vec()));
                    stored(from.len(), &path)
                }
                Act::Remove(at) => {
                    let path = at.get(&reachable).clone();
                    held.remove(&path);
                    removed(&path)
                }
                Act::Clear => {
                    held.clear();
                    Data::Cleared
                }
            };
            stream.events.push(data);
            stream.states.push(held.clone());
        }
        stream
    })
}

/// Whether all blocks up to this one are held.
fn whole(held: &Held, path: &[u64]) -> bool {
    (1..=path.len()).all(|end| held.contains(&path[..end]))
}

#[derive(Clone, Debug)]
enum Fate {
    /// The next event of a stream arrives.
    Deliver(Any),
    /// The next event of a stream is lost.
    Lose(Any),
    /// An event that was published before arrives, again or late.
    Again(Any, Any),
    /// The record of the rank names another publisher, or none.
    Names(Option<Any>),
    /// A publisher is registered (again).
    Register(Any),
    /// Nobody says anything for long.
    Silence,
    /// The subscription has been gone for long.
    Age,
    /// The subscription has ended; another begins.
    End,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        20 => any::<Any>().prop_map(Fate::Deliver),
        3 => any::<Any>().prop_map(Fate::Lose),
        5 => (any::<Any>(), any::<Any>()).prop_map(|(stream, event)| Fate::Again(stream, event)),
        2 => any::<Option<Any>>().prop_map(Fate::Names),
        2 => any::<Any>().prop_map(Fate::Register),
        2 => Just(Fate::Silence),
        1 => Just(Fate::Age),
        1 => Just(Fate::End),
    ]
}

/// Who feeds the rank and how far each stream was read, told anew and slowly.
#[derive(Default)]
struct Model {
    read: BTreeMap<u64, u64>,
    named: Option<u64>,
    /// Registered publishers, the latest last.
    registered: Vec<u64>,
    feeder: Option<u64>,
    /// Whether the feeder was heard since the last silence.
    speaks: bool,
}

impl Model {
    fn view(&self) -> FleetView {
        let publishers: Vec<Registered> = self
            .registered
            .iter()
            .map(|id| (*id, (self.named == Some(*id)).then_some((W, 0))))
            .collect();
        view([worker(W, Role::Aggregated, Some(card()))], &publishers)
    }

    fn place(&self, publisher: u64) -> Option<usize> {
        self.registered.iter().position(|id| *id == publisher)
    }

    fn hear(&mut self, publisher: u64, event: u64) {
        if self.read.get(&publisher).is_some_and(|last| event <= *last) {
            return;
        }
        self.read.insert(publisher, event);
        let may = self.named.is_none_or(|named| named == publisher);
        let wins = self.feeder.is_none_or(|feeder| {
            let (mine, first) = (self.place(publisher), self.place(feeder));
            feeder == publisher || mine > first || mine == first && !self.speaks
        });
        if may && wins {
            (self.feeder, self.speaks) = (Some(publisher), true);
        }
    }
}

/// All paths of up to five blocks of two kinds.
fn paths() -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..5 {
        last = last
            .iter()
            .flat_map(|path: &Vec<u64>| [1, 2].map(|tokens| [path.as_slice(), &[tokens]].concat()))
            .collect();
        all.extend(last.clone());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_index_never_knows_more_than_a_worker_held(
        streams in prop::collection::vec(stream(), 3),
        fates in prop::collection::vec(fate(), 1..80),
        first in prop::collection::vec(0..5_usize, 3),
    ) {
        let mut f = Fixture::with(&Model::default().view());
        let mut model = Model::default();
        // Events before the router came are not seen.
        let mut next = first;
        for fate in fates {
            let mut told = None;
            match &fate {
                Fate::Deliver(at) | Fate::Lose(at) => {
                    let stream = at.index(streams.len());
                    let event = next[stream];
                    next[stream] += 1;
                    if matches!(fate, Fate::Deliver(_)) {
                        told = Some((stream, event));
                    }
                }
                Fate::Again(at, event) => {
                    let stream = at.index(streams.len());
                    let published = next[stream].min(streams[stream].events.len());
                    if published > 0 {
                        told = Some((stream, event.index(published)));
                    }
                }
                Fate::Names(at) => {
                    model.named = at.as_ref().map(|at| at.index(streams.len()) as u64).filter(|id| model.registered.contains(id));
                    if model.named.is_some() && model.feeder != model.named {
                        model.feeder = None;
                    }
                    f.intake.follow(&model.view(), f.now);
                }
                Fate::Register(at) => {
                    let id = at.index(streams.len()) as u64;
                    model.registered.retain(|known| *known != id);
                    if model.named == Some(id) {
                        model.named = None;
                    }
                    f.intake.follow(&model.view(), f.now);
                    model.registered.push(id);
                    f.intake.follow(&model.view(), f.now);
                }
                Fate::Silence => {
                    f.now += FEEDER_SILENT_AFTER;
                    model.speaks = false;
                }
                Fate::Age => {
                    f.intake.age(&f.cursors, f.now);
                    model.feeder = None;
                }
                Fate::End => {
                    f.intake.end(&mut f.cursors, f.now);
                    model.feeder = None;
                    model.read.clear();
                }
            }
            if let Some((stream, at)) = told
                && let Some(data) = streams[stream].events.get(at)
            {
                let (publisher, id) = (stream as u64, at as u64 + 1);
                f.tell(publisher, &event(id, 0, data.clone()));
                model.hear(publisher, id);
            }
            let truth = model.feeder.map(|feeder| &streams[feeder as usize].states[model.read[&feeder] as usize]);
            for path in paths() {
                let known = f.blocks(0, &path) as usize;
                prop_assert!(
                    known == 0 || truth.is_some_and(|held| whole(held, &path[..known])),
                    "{path:?}: {known} blocks after {fate:?}, held {truth:?}"
                );
            }
        }
    }

    /// Without losses it knows all.
    #[test]
    fn a_stream_without_a_hole_is_known_whole(stream in stream()) {
        let mut f = Fixture::new();
        for (at, data) in stream.events.iter().enumerate() {
            f.tell(1, &event(at as u64 + 1, 0, data.clone()));
            f.tell(1, &event(at as u64 + 1, 0, data.clone()));
            let held = &stream.states[at + 1];
            for path in paths() {
                let blocks = (1..=path.len()).take_while(|end| whole(held, &path[..*end])).count();
                prop_assert_eq!(f.blocks(0, &path) as usize, blocks, "{:?} after {:?}", path, data);
            }
        }
    }
}
