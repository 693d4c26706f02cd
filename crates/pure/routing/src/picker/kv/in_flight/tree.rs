//! Prompts as a radix tree: a node is a run of blocks that no prompt leaves in the middle.
//!
//! Who holds a node holds all nodes above it. So the work for one prompt is a comparison of its hashes and a few steps
//! from node to node, and a prompt that nobody shares is one node.

use std::collections::BTreeMap;

use super::roster::Number;

/// A node's place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(usize);

/// The beginning of every prompt.
const ROOT: Node = Node(0);

#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Run>,
    free: Vec<Node>,
    remembered: Remembered,
}

/// How much is remembered of prompts that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    /// Different blocks.
    pub(super) blocks: usize,
    /// Ranks at runs of blocks.
    pub(super) places: usize,
}

#[derive(Debug, Default)]
struct Run {
    parent: usize,
    /// Empty only at the root.
    hashes: Box<[u64]>,
    /// By their first block.
    children: BTreeMap<u64, Node>,
    /// How many requests of a rank go through here; in order.
    holders: Vec<(Number, u32)>,
    /// Holders that stand for what is remembered.
    readers: usize,
}

impl Run {
    /// Blocks that the rank held already.
    fn hold(&mut self, rank: Number) -> usize {
        match self.holders.binary_search_by_key(&rank, |(rank, _)| *rank) {
            Ok(known) => {
                self.holders[known].1 += 1;
                self.hashes.len()
            }
            Err(place) => {
                self.holders.insert(place, (rank, 1));
                self.readers += usize::from(rank.is_read());
                0
            }
        }
    }

    /// Blocks that the rank holds still.
    fn release(&mut self, rank: Number) -> usize {
        let Ok(known) = self.holders.binary_search_by_key(&rank, |(rank, _)| *rank) else {
            return 0;
        };
        self.holders[known].1 -= 1;
        if self.holders[known].1 > 0 {
            return self.hashes.len();
        }
        self.holders.remove(known);
        self.readers -= usize::from(rank.is_read());
        0
    }

    fn remembered(&self) -> Remembered {
        Remembered {
            blocks: if self.readers > 0 { self.hashes.len() } else { 0 },
            places: self.readers,
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Run::default()],
            free: Vec::new(),
            remembered: Remembered::default(),
        }
    }
}

impl Tree {
    /// Adds a request; the end of its path, and how many of its blocks the rank held already.
    pub(super) fn enter(&mut self, rank: Number, hashes: &[u64]) -> (Node, usize) {
        let (mut at, mut rest, mut shared) = (ROOT, hashes, 0);
        while let Some(first) = rest.first() {
            let next = match self.run(at).children.get(first).copied() {
                Some(child) => {
                    let common = common(&self.run(child).hashes, rest);
                    rest = rest.get(common..).unwrap_or_default();
                    self.cut(child, common)
                }
                None => {
                    let child = self.add(at, std::mem::take(&mut rest).into());
                    self.run_mut(at).children.insert(*first, child);
                    child
                }
            };
            shared += self.change(next, |run| run.hold(rank));
            at = next;
        }
        (at, shared)
    }

    /// Ends a request that [`Self::enter`] has added. Blocks of it that the rank holds still, for others.
    pub(super) fn leave(&mut self, rank: Number, end: Node) -> usize {
        let (mut at, mut kept) = (end, 0);
        while at != ROOT {
            kept += self.change(at, |run| run.release(rank));
            let run = self.run_mut(at);
            let parent = Node(run.parent);
            if run.holders.is_empty() {
                // Nobody holds what is below either, so nothing is there.
                let gone = std::mem::take(run);
                if let Some(first) = gone.hashes.first() {
                    self.run_mut(parent).children.remove(first);
                }
                self.free.push(at);
            }
            at = parent;
        }
        kept
    }

    /// What `from` holds down to the end of its path, `to` holds from now on. Blocks of it that `from` holds still.
    pub(super) fn hand_over(&mut self, from: Number, to: Number, end: Node) -> usize {
        let (mut at, mut kept) = (end, 0);
        while at != ROOT {
            kept += self.change(at, |run| {
                let kept = run.release(from);
                run.hold(to);
                kept
            });
            at = Node(self.run(at).parent);
        }
        kept
    }

    /// How much is remembered. What prompts or ranks share is one block.
    pub(super) const fn remembered(&self) -> Remembered {
        self.remembered
    }

    /// Blocks from the beginning of a prompt that each rank holds, in order of the ranks.
    pub(super) fn find(&self, hashes: &[u64]) -> Vec<(Number, u32)> {
        let mut path = Vec::new();
        let (mut at, mut rest, mut depth) = (ROOT, hashes, 0);
        while let Some(child) = rest.first().and_then(|first| self.run(at).children.get(first)) {
            let run = self.run(*child);
            let common = common(&run.hashes, rest);
            depth += common;
            path.push((*child, depth));
            if common < run.hashes.len() {
                break;
            }
            rest = rest.get(common..).unwrap_or_default();
            at = *child;
        }
        let mut found: Vec<(Number, u32)> = Vec::new();
        for (node, depth) in path.into_iter().rev() {
            let holders = &self.run(node).holders;
            // Those who hold a node below hold this one: as many are the same.
            if holders.len() == found.len() {
                continue;
            }
            let depth = u32::try_from(depth).unwrap_or(u32::MAX);
            let mut deeper = found.iter().copied().peekable();
            let longest = |(rank, _): &(Number, u32)| {
                let known = deeper.next_if(|(deeper, _)| deeper == rank);
                known.unwrap_or((*rank, depth))
            };
            found = holders.iter().map(longest).collect();
        }
        found
    }

    /// What is remembered, counted anew.
    #[cfg(test)]
    pub(super) fn count_remembered(&self) -> Remembered {
        let of_reads = |run: &Run| run.holders.iter().filter(|(number, _)| number.is_read()).count();
        self.nodes.iter().fold(Remembered::default(), |all, run| {
            let places = of_reads(run);
            Remembered {
                blocks: all.blocks + if places > 0 { run.hashes.len() } else { 0 },
                places: all.places + places,
            }
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.run(ROOT).children.is_empty() && self.free.len() + 1 == self.nodes.len()
    }

    /// Changes who holds a run, and what is remembered with it.
    fn change(&mut self, node: Node, change: impl FnOnce(&mut Run) -> usize) -> usize {
        let run = self.run_mut(node);
        let before = run.remembered();
        let blocks = change(run);
        let after = run.remembered();
        let Remembered { blocks: all, places } = &mut self.remembered;
        *all = *all + after.blocks - before.blocks;
        *places = *places + after.places - before.places;
        blocks
    }

    /// The node that ends `blocks` after the beginning of this one, which keeps its end and its name.
    fn cut(&mut self, node: Node, blocks: usize) -> Node {
        let run = self.run_mut(node);
        if blocks >= run.hashes.len() {
            return node;
        }
        let parent = Node(run.parent);
        let (upper, lower) = run.hashes.split_at(blocks);
        let (upper, lower): (Box<[u64]>, Box<[u64]>) = (upper.into(), lower.into());
        let (holders, readers) = (run.holders.clone(), run.readers);
        let (Some(&first), Some(&second)) = (upper.first(), lower.first()) else {
            return node;
        };
        run.hashes = lower;
        let above = self.add(parent, upper);
        self.run_mut(node).parent = above.0;
        let run = self.run_mut(above);
        (run.holders, run.readers) = (holders, readers);
        run.children.insert(second, node);
        self.run_mut(parent).children.insert(first, above);
        // Each of them is at two runs now.
        self.remembered.places += readers;
        above
    }

    fn add(&mut self, parent: Node, hashes: Box<[u64]>) -> Node {
        let run = Run {
            parent: parent.0,
            hashes,
            ..Run::default()
        };
        if let Some(node) = self.free.pop() {
            *self.run_mut(node) = run;
            return node;
        }
        self.nodes.push(run);
        Node(self.nodes.len() - 1)
    }

    fn run(&self, node: Node) -> &Run {
        &self.nodes[node.0]
    }

    fn run_mut(&mut self, node: Node) -> &mut Run {
        &mut self.nodes[node.0]
    }
}

fn common(run: &[u64], hashes: &[u64]) -> usize {
    run.iter().zip(hashes).take_while(|(a, b)| a == b).count()
}
