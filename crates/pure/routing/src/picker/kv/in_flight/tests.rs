use std::collections::BTreeSet;

use continuum_fleet::ids::{InstanceId, WorkerKey};
use proptest::prelude::*;

use super::{tree::Remembered, *};

const NOW: Millis = Millis(1_000);

fn rank(instance: u64) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: "dynamo".into(),
            instance: InstanceId::new(instance),
        },
        rank: 0,
    }
}

#[test]
fn a_block_is_held_while_a_request_that_contains_it_is_open() {
    let all = Arc::new(InFlight::default());
    let (a, b) = (rank(1), rank(2));
    all.set_live(&[a.clone(), b.clone()]);
    let long = all.enter(&a, &[1, 2, 3, 4]);
    let other = all.enter(&a, &[1, 2, 9]);
    let there = all.enter(&b, &[1]);
    assert_eq!(all.find(&[1, 2, 3, 4, 5], NOW).of(&a).open, 4);
    assert_eq!(all.find(&[1, 2, 9], NOW).of(&a).open, 3);
    assert_eq!(all.find(&[1, 2, 3], NOW).of(&b).open, 1);
    drop(long);
    assert_eq!(all.find(&[1, 2, 3, 4, 5], NOW).of(&a).open, 2);
    assert_eq!(all.find(&[1, 2, 9], NOW).of(&a).open, 3);
    drop(other);
    assert_eq!(all.find(&[1, 2, 9], NOW).of(&a).open, 0);
    drop(there);
    assert!(all.state.lock().unwrap().tree.is_empty());
}

#[test]
fn a_rank_that_left_takes_its_requests_along() {
    let all = Arc::new(InFlight::default());
    let a = rank(1);
    let early = all.enter(&a, &[1, 2]);
    all.set_live(std::slice::from_ref(&a));
    let open = all.enter(&a, &[1, 2]);
    all.set_live(&[]);
    assert_eq!(all.find(&[1, 2], NOW).of(&a).open, 0);
    all.set_live(std::slice::from_ref(&a));
    assert_eq!(all.find(&[1, 2], NOW).of(&a).open, 0);
    let again = all.enter(&a, &[1]);
    // The old requests end: the new one still holds its block.
    drop((early, open));
    assert_eq!(all.find(&[1, 2], NOW).of(&a).open, 1);
    drop(again);
    assert_eq!(all.find(&[1], NOW).of(&a).open, 0);
    assert!(all.state.lock().unwrap().tree.is_empty());
}

#[test]
fn a_prompt_that_was_read_is_remembered_for_a_while() {
    let all = Arc::new(InFlight::default());
    let (a, b) = (rank(1), rank(2));
    all.set_live(&[a.clone(), b.clone()]);
    let open = all.enter(&a, &[1, 2, 3]);
    all.enter(&a, &[1, 2, 9]).remember(NOW);
    let found = all.find(&[1, 2, 9], NOW);
    assert_eq!(
        (found.of(&a), found.of(&b).read),
        (RankInUse { open: 2, read: 3 }, 0)
    );
    drop(open);
    let last = Millis(NOW.0 + READ_FOR_MS - 1);
    let found = all.find(&[1, 2, 9], last);
    assert_eq!(found.of(&a), RankInUse { open: 0, read: 3 });
    assert_eq!(all.find(&[1, 2, 9], last.plus(1)).of(&a).read, 0);
    assert!(all.state.lock().unwrap().tree.is_empty());
}

#[test]
fn of_too_many_prompts_that_were_read_the_oldest_are_forgotten() {
    let all = Arc::new(InFlight::default());
    let a = rank(1);
    all.set_live(std::slice::from_ref(&a));
    let prompt = |number: u64| -> Vec<u64> {
        let blocks = number * 8192..(number + 1) * 8192;
        blocks.collect()
    };
    let fit = u64::try_from(READ_BLOCKS / 8192).unwrap();
    for number in 0..=fit {
        all.enter(&a, &prompt(number)).remember(NOW);
    }
    assert_eq!(all.find(&prompt(0), NOW).of(&a).read, 0);
    assert_eq!(all.find(&prompt(1), NOW).of(&a).read, 8192);
    let remembered = |all: &InFlight| all.state.lock().unwrap().tree.remembered();
    assert_eq!(remembered(&all).blocks, READ_BLOCKS);
}

#[test]
fn what_many_prompts_and_ranks_share_is_remembered_once() {
    let all = Arc::new(InFlight::default());
    let ranks: Vec<RankKey> = (0..1_000).map(rank).collect();
    all.set_live(&ranks);
    let system: Vec<u64> = (0..4_096).collect();
    let prompt = |number: u64| [system.as_slice(), &[1 << 32 | number]].concat();
    for (number, rank) in (0..3_000).zip(ranks.iter().cycle()) {
        all.enter(rank, &prompt(number)).remember(NOW);
    }
    let found = all.find(&prompt(0), NOW);
    assert_eq!(
        (found.of(&ranks[0]).read, found.of(&ranks[1]).read),
        (4_097, 4_096)
    );
    assert_eq!(
        all.state.lock().unwrap().tree.remembered(),
        Remembered {
            blocks: 4_096 + 3_000,
            places: 1_000 + 3_000
        }
    );
    for _ in 0..3 {
        let _ = all.find(&[], NOW.plus(READ_FOR_MS));
    }
    assert!(all.state.lock().unwrap().tree.is_empty());
}

#[test]
fn prompts_of_few_blocks_are_bounded_too() {
    let all = Arc::new(InFlight::default());
    let a = rank(1);
    all.set_live(std::slice::from_ref(&a));
    let fit = u64::try_from(READ_PLACES / 2).unwrap();
    for number in 0..=fit {
        all.enter(&a, &[number]).remember(NOW);
    }
    assert_eq!(all.find(&[0], NOW).of(&a).read, 0);
    assert_eq!(all.find(&[1], NOW).of(&a).read, 1);
    // The same one over and over is a prompt each time.
    for _ in 0..10_000 {
        all.enter(&a, &[fit]).remember(NOW);
    }
    assert_eq!(all.find(&[fit], NOW).of(&a).read, 1);
    let state = all.state.lock().unwrap();
    assert_eq!(state.tree.remembered().places + state.read.len(), READ_PLACES);
}

#[test]
fn one_request_does_not_forget_all_of_a_burst() {
    let all = Arc::new(InFlight::default());
    let a = rank(1);
    all.set_live(std::slice::from_ref(&a));
    for number in 0..1_500 {
        all.enter(&a, &[number]).remember(NOW);
    }
    let later = NOW.plus(READ_FOR_MS);
    let left = || all.state.lock().unwrap().read.len();
    let _ = all.find(&[], later);
    assert_eq!(left(), 1_500 - FORGOTTEN_AT_ONCE);
    let _ = all.find(&[], later);
    assert_eq!(left(), 0);
}

#[test]
fn a_rank_that_was_emptied_keeps_its_open_requests_alone() {
    let all = Arc::new(InFlight::default());
    let (a, b) = (rank(1), rank(2));
    all.set_live(&[a.clone(), b.clone()]);
    let open = all.enter(&a, &[1, 2]);
    for rank in [&a, &b] {
        all.enter(rank, &[1, 2, 3]).remember(NOW);
    }
    let of = |rank: &RankKey| all.find(&[1, 2, 3], NOW).of(rank);
    let before = all.find(&[1, 2, 3], NOW);
    all.empty([&a, &rank(3)]);
    assert_eq!(of(&a), RankInUse { open: 2, read: 0 });
    assert_eq!(of(&b), RankInUse { open: 0, read: 3 });
    assert_eq!(before.of(&a).read, 0, "for who has asked already, too");
    // A view in which another rank is new makes nothing of it come back.
    all.set_live(&[a.clone(), b.clone(), rank(3)]);
    assert_eq!(of(&a).read, 0);
    let next = all.enter(&a, &[1, 2]);
    assert_eq!(next.shared(), 2, "held by the open request");
    assert_eq!(open.remember(NOW), 2);
    assert_eq!(of(&a), RankInUse { open: 2, read: 0 }, "it came before");
    next.remember(NOW);
    assert_eq!(of(&a), RankInUse { open: 0, read: 2 });
    all.empty([&a]);
    assert_eq!(of(&a).read, 0);
    let _ = all.find(&[], NOW.plus(READ_FOR_MS));
    assert!(all.state.lock().unwrap().tree.is_empty());
}

#[test]
fn requests_do_not_wait_for_the_next_ranks() {
    let all = Arc::new(InFlight::default());
    let (done, ended) = std::sync::mpsc::channel();
    let requests = all.state.lock().unwrap();
    let writer = std::thread::spawn({
        let all = Arc::clone(&all);
        move || {
            all.set_live(&[rank(1), rank(2)]);
            all.empty([&rank(1)]);
            done.send(()).unwrap();
        }
    });
    ended
        .recv_timeout(std::time::Duration::from_secs(10))
        .expect("it holds nothing that requests need");
    drop(requests);
    writer.join().unwrap();
}

#[test]
fn a_rank_is_known_while_it_is_emptied_and_others_come_and_go() {
    let all = Arc::new(InFlight::default());
    let (a, b) = (rank(1), rank(2));
    all.set_live(std::slice::from_ref(&a));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..20_000 {
                all.empty([&a]);
                all.set_live(&[a.clone(), b.clone()]);
                all.empty([&a]);
                all.set_live(std::slice::from_ref(&a));
            }
        });
        while !writer.is_finished() {
            assert!(all.enter(&a, &[1]).place.is_some());
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u64, Vec<u64>),
    Leave(usize),
    Remember(usize),
    Live(Vec<u64>),
    Empty(Vec<u64>),
    /// So many milliseconds go by.
    Wait(u64),
}

fn prompt() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..3_u64, 0..8)
}

fn step() -> impl Strategy<Value = Step> {
    let ranks = || prop::sample::subsequence(vec![0, 1, 2, 3], 0..=4);
    prop_oneof![
        6 => (0..4_u64, prompt()).prop_map(|(rank, hashes)| Step::Enter(rank, hashes)),
        4 => any::<usize>().prop_map(Step::Leave),
        2 => any::<usize>().prop_map(Step::Remember),
        1 => ranks().prop_map(Step::Live),
        1 => ranks().prop_map(Step::Empty),
        1 => (0..READ_FOR_MS).prop_map(Step::Wait),
    ]
}

proptest! {
    /// What is booked when requests come and let go when they end is what they hold, each block once.
    #[test]
    fn shared_blocks_are_counted_once_whoever_ends_first(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), any::<usize>(), prompt()), 0..60),
    ) {
        let all = Arc::new(InFlight::default());
        let a = rank(1);
        all.set_live(std::slice::from_ref(&a));
        let (mut open, mut booked) = (Vec::<(Vec<u64>, Entry)>::new(), 0);
        for (comes, read, at, hashes) in steps {
            if comes || open.is_empty() {
                let entry = all.enter(&a, &hashes);
                booked += hashes.len() - entry.shared() as usize;
                open.push((hashes, entry));
            } else {
                let (hashes, entry) = open.swap_remove(at % open.len());
                let kept = if read { entry.remember(NOW) } else { entry.leave() };
                booked -= hashes.len() - kept as usize;
            }
            let held: BTreeSet<&[u64]> = open
                .iter()
                .flat_map(|(hashes, _)| (1..=hashes.len()).map(|end| &hashes[..end]))
                .collect();
            prop_assert_eq!(booked, held.len());
        }
    }

    /// Against a list of the open requests, and one of those that were read.
    #[test]
    fn what_is_found_is_the_longest_common_prefix(
        steps in prop::collection::vec(step(), 0..60),
        asked in prop::collection::vec(prompt(), 4),
    ) {
        let all = Arc::new(InFlight::default());
        let mut live = vec![0, 1, 2, 3];
        let ranks = |of: &[u64]| of.iter().copied().map(rank).collect::<Vec<_>>();
        all.set_live(&ranks(&live));
        let mut now = NOW;
        let mut open: Vec<(Naive, Entry)> = Vec::new();
        let mut read: Vec<(Naive, Millis)> = Vec::new();
        for step in steps {
            match step {
                Step::Enter(of, hashes) => {
                    let entry = all.enter(&rank(of), &hashes);
                    let of = Some(of).filter(|of| live.contains(of));
                    open.push((Naive { of, read_by: of, was_placed: of.is_some(), hashes }, entry));
                }
                Step::Leave(at) if !open.is_empty() => drop(open.swap_remove(at % open.len())),
                Step::Remember(at) if !open.is_empty() => {
                    let (naive, entry) = open.swap_remove(at % open.len());
                    entry.remember(now);
                    read.push((naive, now.plus(READ_FOR_MS)));
                }
                Step::Leave(_) | Step::Remember(_) => {}
                Step::Live(next) => {
                    live = next;
                    all.set_live(&ranks(&live));
                    for naive in naives(&mut open, &mut read) {
                        naive.of = naive.of.filter(|of| live.contains(of));
                        naive.read_by = naive.read_by.filter(|of| live.contains(of));
                    }
                }
                Step::Empty(emptied) => {
                    all.empty(&ranks(&emptied));
                    for naive in naives(&mut open, &mut read) {
                        naive.read_by = naive.read_by.filter(|of| !emptied.contains(of));
                    }
                }
                Step::Wait(ms) => now = now.plus(ms),
            }
            read.retain(|(_, until)| *until > now);
            for asked in &asked {
                let found = all.find(asked, now);
                for of in 0..4 {
                    let common = |naive: &Naive| naive.hashes.iter().zip(asked).take_while(|(a, b)| a == b).count();
                    let mine = open.iter().filter(|(naive, _)| naive.of == Some(of));
                    let most = mine.map(|(naive, _)| common(naive)).max().unwrap_or(0);
                    prop_assert_eq!(found.of(&rank(of)).open as usize, most);
                    let mine = read.iter().filter(|(naive, _)| naive.read_by == Some(of));
                    let most = mine.map(|(naive, _)| common(naive)).max().unwrap_or(0);
                    prop_assert_eq!(found.of(&rank(of)).read as usize, most);
                }
            }
            let placed = read.iter().filter(|(naive, _)| naive.was_placed);
            let blocks: BTreeSet<&[u64]> = placed
                .flat_map(|(Naive { hashes, .. }, _)| (1..=hashes.len()).map(|end| &hashes[..end]))
                .collect();
            let state = all.state.lock().unwrap();
            prop_assert_eq!(state.tree.remembered().blocks, blocks.len());
            prop_assert_eq!(state.tree.remembered(), state.tree.count_remembered());
        }
        drop(open);
        let _ = all.find(&[], now.plus(READ_FOR_MS));
        let state = all.state.lock().unwrap();
        prop_assert!(state.tree.is_empty());
        prop_assert_eq!(state.tree.remembered(), Remembered::default());
    }
}

/// A prompt, as a list has it.
struct Naive {
    of: Option<u64>,
    /// Its rank until that is emptied.
    read_by: Option<u64>,
    was_placed: bool,
    hashes: Vec<u64>,
}

fn naives<'n>(
    open: &'n mut [(Naive, Entry)],
    read: &'n mut [(Naive, Millis)],
) -> impl Iterator<Item = &'n mut Naive> {
    let open = open.iter_mut().map(|(naive, _)| naive);
    open.chain(read.iter_mut().map(|(naive, _)| naive))
}
