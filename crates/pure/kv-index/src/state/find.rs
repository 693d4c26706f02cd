//! Lookups.

use super::{Owner, State, WARM};
use crate::{
    answer::{Matches, Run},
    seats::{Level, NOBODY},
    sets::{EMPTY, each_bit},
};

impl State {
    /// How many blocks from the beginning each rank holds. `out` is empty and has room for all numbers.
    pub(crate) fn find(&self, hashes: &[u64], out: &mut Matches) {
        let Matches {
            device: depths,
            active,
            runs,
            ..
        } = out;
        // Who holds all blocks so far: at first, everybody.
        active.extend_from_slice(self.seats.live());
        let mut holders = true;
        let mut reached = |seat: u16, depth: usize| {
            let rank = usize::from(self.seats.rank(seat));
            if let Some(place) = depths.get_mut(rank) {
                *place = depth as u32;
            }
        };
        let (mut key, mut depth, mut device, mut lower) = (0, 0, None, EMPTY);
        for part in hashes.chunks(WARM) {
            let mut keys = [0; WARM];
            for (at, local) in keys.iter_mut().zip(part) {
                key = self.seeds.chain(key, *local);
                *at = key;
            }
            let whole = self.blocks.visit(&keys[..part.len()], |block| {
                if device != Some(block.device) {
                    device = Some(block.device);
                    if holders {
                        let owners = self.sets.view(block.device);
                        owners.narrow(active, |seat| reached(seat, depth));
                        holders = active.iter().any(|word| *word != 0);
                    }
                }
                if block.lower() != lower {
                    lower = block.lower();
                    runs.push(Run {
                        from: depth as u32,
                        owners: lower,
                    });
                }
                if !holders && lower == EMPTY {
                    return false;
                }
                block.touch();
                depth += 1;
                true
            });
            if !whole {
                break;
            }
        }
        for (number, word) in active.iter().enumerate() {
            each_bit(number, *word, &mut |seat| reached(seat, depth));
        }
        if !runs.is_empty() {
            self.find_lower(depth as u32, out);
        }
    }

    /// Blocks of the host and on disk, where those of the device end.
    fn find_lower(&self, end: u32, out: &mut Matches) {
        let Matches {
            device, lower, runs, ..
        } = out;
        lower.resize(device.len(), (0, 0));
        let ends = runs.iter().skip(1).map(|run| run.from).chain([end]);
        for (run, end) in runs.iter().zip(ends) {
            self.sets.view(run.owners).each(|member| {
                let owner = Owner::of_below(member);
                let rank = self.seats.rank(owner.seat);
                let number = usize::from(rank);
                let (Some(device), Some((host, disk))) = (device.get(number), lower.get_mut(number)) else {
                    return;
                };
                let at = device + *host + *disk;
                if rank == NOBODY || at < run.from || at >= end {
                    return;
                }
                match owner.level {
                    Level::Host if *disk == 0 => *host += end - at,
                    Level::Disk => *disk += end - at,
                    Level::Host | Level::Device => {}
                }
            });
        }
    }
}
