//! The events and the prompts of a fleet that serves conversations. The same seed gives the same fleet.
//!
//! Conversations begin with one of a few system prompts, a few of them popular, and grow turn by turn. Most turns go to
//! the worker that served the last one; the others go anywhere, and that worker stores the whole prompt again. A worker
//! has room for so many blocks. When it is full it drops the conversations that it served least lately, from their
//! ends, but no block that another conversation on it has as well.

use std::collections::{HashMap, VecDeque};

use continuum_wire::router_event::{Block, Data, Stored};

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub workers: usize,
    /// Blocks that one worker has room for.
    pub room: usize,
    /// Events after the workers are full.
    pub churn_events: usize,
    pub prompts: usize,
}

const SEED: u64 = 0x5eed;
const SYSTEM_PROMPTS: usize = 64;
const SYSTEM_BLOCKS: (usize, usize) = (8, 64);
const USER_BLOCKS: (usize, usize) = (1, 12);
const ANSWER_BLOCKS: (usize, usize) = (1, 6);
const TURNS: (usize, usize) = (1, 12);
/// Turns of a hundred that go to the worker of the turn before.
const STICKY: usize = 90;
/// Prompts of a hundred that nobody has seen.
const UNSEEN: usize = 10;
/// Most hashes in one event of removals.
const REMOVALS: usize = 16;

/// One event of one worker.
#[derive(Clone, Debug)]
pub struct Event {
    pub worker: usize,
    pub data: Data,
}

pub struct Workload {
    pub shape: Shape,
    /// Until the workers are full.
    pub fill: Vec<Event>,
    pub churn: Vec<Event>,
    pub prompts: Vec<Vec<u64>>,
    /// Blocks that workers hold after the fill and after the churn, and different ones among the latter.
    pub filled: usize,
    pub resident: usize,
    pub distinct: usize,
}

/// Blocks that the events store and remove.
pub fn blocks_in(events: &[Event]) -> usize {
    let of = |event: &Event| match &event.data {
        Data::Stored(stored) => stored.blocks.len(),
        Data::Removed(names) => names.len(),
        Data::Cleared => 0,
    };
    events.iter().map(of).sum()
}

impl Workload {
    pub fn new(shape: Shape) -> Self {
        let mut fleet = Fleet::new(shape);
        let mut fill = Vec::new();
        while fleet.resident() < shape.workers * shape.room * 97 / 100 {
            for _ in 0..shape.workers * 4 {
                fleet.turn(&mut fill);
            }
        }
        let filled = fleet.resident();
        let mut churn = Vec::new();
        while churn.len() < shape.churn_events {
            fleet.turn(&mut churn);
        }
        let prompts = (0..shape.prompts).map(|_| fleet.prompt()).collect();
        Self {
            shape,
            fill,
            churn,
            prompts,
            filled,
            resident: fleet.resident(),
            distinct: fleet.distinct(),
        }
    }

    /// Mean length of the prompts, in blocks.
    pub fn prompt_blocks(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum::<usize>() / self.prompts.len().max(1)
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    fn between(&mut self, (low, high): (usize, usize)) -> usize {
        low + self.below(high - low + 1)
    }

    fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }
}

const fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Blocks from the beginning: the hash of each one's tokens, and an engine's name for it at its place.
#[derive(Clone, Default)]
struct Chain {
    hashes: Vec<u64>,
    names: Vec<u64>,
}

impl Chain {
    fn grow(&mut self, dice: &mut Dice, blocks: usize) {
        for _ in 0..blocks {
            let hash = dice.next();
            let before = self.names.last().copied().unwrap_or(0);
            self.hashes.push(hash);
            self.names.push(mixed(before.rotate_left(17) ^ hash));
        }
    }
}

struct Conversation {
    chain: Chain,
    home: usize,
    turns_left: usize,
    id: u64,
}

#[derive(Default)]
struct Worker {
    /// Conversations here that have a block.
    uses: HashMap<u64, u32>,
    /// Conversations here: blocks, and when it was served last.
    here: HashMap<u64, (Chain, u64)>,
    /// When conversations were served, oldest first; what was served again since is out of date.
    served: VecDeque<(u64, u64)>,
}

struct Fleet {
    shape: Shape,
    dice: Dice,
    system: Vec<Chain>,
    conversations: Vec<Conversation>,
    workers: Vec<Worker>,
    now: u64,
    ids: u64,
}

impl Fleet {
    fn new(shape: Shape) -> Self {
        let mut dice = Dice(SEED);
        let system = (0..SYSTEM_PROMPTS).map(|_| {
            let mut chain = Chain::default();
            let blocks = dice.between(SYSTEM_BLOCKS);
            chain.grow(&mut dice, blocks);
            chain
        });
        let system = system.collect();
        let mut fleet = Self {
            shape,
            dice,
            system,
            conversations: Vec::new(),
            workers: (0..shape.workers).map(|_| Worker::default()).collect(),
            now: 0,
            ids: 0,
        };
        // About one and a half times as many as there is room for.
        let blocks = TURNS.1 / 2 * 10 / 2 + 15;
        for _ in 0..(shape.workers * shape.room * 3 / 2 / blocks).max(64) {
            let conversation = fleet.conversation();
            fleet.conversations.push(conversation);
        }
        fleet
    }

    fn conversation(&mut self) -> Conversation {
        // The n-th system prompt is as popular as one over n.
        let harmonic: usize = (1..=SYSTEM_PROMPTS).map(|n| 1_000_000 / n).sum();
        let mut left = self.dice.below(harmonic);
        let mut number = 0;
        while number + 1 < SYSTEM_PROMPTS && left >= 1_000_000 / (number + 1) {
            left -= 1_000_000 / (number + 1);
            number += 1;
        }
        self.ids += 1;
        Conversation {
            chain: self.system[number].clone(),
            home: self.dice.below(self.shape.workers),
            turns_left: self.dice.between(TURNS),
            id: self.ids,
        }
    }

    /// Serves one turn of some conversation.
    fn turn(&mut self, events: &mut Vec<Event>) {
        self.now += 1;
        let place = self.dice.below(self.conversations.len());
        if self.conversations[place].turns_left == 0 {
            self.conversations[place] = self.conversation();
        }
        if !self.dice.percent(STICKY) {
            self.conversations[place].home = self.dice.below(self.shape.workers);
        }
        let user = self.dice.between(USER_BLOCKS);
        let answer = self.dice.between(ANSWER_BLOCKS);
        let conversation = &mut self.conversations[place];
        conversation.turns_left -= 1;
        conversation.chain.grow(&mut self.dice, user);
        let asked = conversation.chain.hashes.len();
        conversation.chain.grow(&mut self.dice, answer);
        let (id, number, chain) = (conversation.id, conversation.home, conversation.chain.clone());
        self.serve(number, id, chain, asked, events);
    }

    /// A prompt comes in one event, each block of the answer in one of its own.
    fn serve(&mut self, number: usize, id: u64, chain: Chain, asked: usize, events: &mut Vec<Event>) {
        let worker = &mut self.workers[number];
        let end = chain.names.len();
        let before = worker.here.get(&id).map_or(0, |(chain, _)| chain.names.len());
        let new = (before..end)
            .find(|n| !worker.uses.contains_key(&chain.names[*n]))
            .unwrap_or(end);
        for name in &chain.names[before..] {
            *worker.uses.entry(*name).or_insert(0) += 1;
        }
        let mut store = |from: usize, to: usize| {
            let blocks = (from..to).map(|n| Block {
                hash: chain.names[n],
                tokens: chain.hashes[n],
                multimodal: false,
            });
            let parent = from.checked_sub(1).map(|n| chain.names[n]);
            let blocks = blocks.collect();
            let data = Data::Stored(Stored { parent, blocks });
            events.push(Event { worker: number, data });
        };
        if new < asked {
            store(new, asked);
        }
        for n in new.max(asked)..end {
            store(n, n + 1);
        }
        worker.here.insert(id, (chain, self.now));
        worker.served.push_back((self.now, id));
        while worker.uses.len() > self.shape.room
            && let Some((when, oldest)) = worker.served.pop_front()
        {
            let current = worker
                .here
                .get(&oldest)
                .is_some_and(|(_, served)| *served == when);
            if oldest == id || !current {
                continue;
            }
            let Some((chain, _)) = worker.here.remove(&oldest) else {
                continue;
            };
            let mut gone = Vec::new();
            for name in chain.names.iter().rev() {
                if let Some(uses) = worker.uses.get_mut(name) {
                    *uses -= 1;
                    if *uses == 0 {
                        worker.uses.remove(name);
                        gone.push(*name);
                    }
                }
            }
            events.extend(gone.chunks(REMOVALS).map(|names| Event {
                worker: number,
                data: Data::Removed(names.to_vec()),
            }));
        }
    }

    /// The next turn of some conversation, or as long a prompt that nobody has seen.
    fn prompt(&mut self) -> Vec<u64> {
        let place = self.dice.below(self.conversations.len());
        let mut chain = self.conversations[place].chain.clone();
        if self.dice.percent(UNSEEN) {
            let blocks = chain.hashes.len();
            chain = Chain::default();
            chain.grow(&mut self.dice, blocks);
        }
        let user = self.dice.between(USER_BLOCKS);
        chain.grow(&mut self.dice, user);
        chain.hashes
    }

    fn resident(&self) -> usize {
        self.workers.iter().map(|worker| worker.uses.len()).sum()
    }

    fn distinct(&self) -> usize {
        let mut all: Vec<u64> = self
            .workers
            .iter()
            .flat_map(|worker| worker.uses.keys().copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}
