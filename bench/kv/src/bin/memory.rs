//! Heap bytes of our index and the peer's for each block that a worker holds, counted by the allocator. A program of its
//! own, so that counting slows nothing that is timed. Exits with 1 when a ratio is above its gate.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    process::ExitCode,
    sync::atomic::{AtomicIsize, Ordering},
};

use bench_kv::{
    measure::Rig,
    shapes::{FLEETS, fleet},
    subjects::{Crtc, Ours, Subject},
    table::{Bar, Ratio, print},
    workload::Workload,
};

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let mut rows = Vec::new();
    for shape in FLEETS.map(fleet) {
        rows.extend(compare(&Workload::new(shape)));
    }
    println!("\nHeap bytes for each resident block\n");
    if print(Crtc::NAME, &rows) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn compare(workload: &Workload) -> [Ratio; 2] {
    let (ours, peer) = (bytes::<Ours>(workload), bytes::<Crtc>(workload));
    let row = |when: &str, ours, peer, bar| Ratio {
        what: format!("{} workers, after {when}", workload.shape.workers),
        ours,
        peer,
        digits: 1,
        ratio: ours / peer,
        bar,
    };
    let bar = Some(Bar::AtMost(0.6, 0.45));
    [
        row("fill", ours.0, peer.0, None),
        row("churn", ours.1, peer.1, bar),
    ]
}

/// After the fill and after the churn.
fn bytes<S: Subject>(workload: &Workload) -> (f64, f64) {
    let before = LIVE.load(Ordering::Relaxed);
    let subject = S::new(workload.shape.workers);
    let mut rig = Rig::of(subject, workload);
    let prompts = LIVE.load(Ordering::Relaxed);
    let empty = prompts - prompts_of(&rig) - before;
    rig.ingest(&workload.fill);
    let filled = LIVE.load(Ordering::Relaxed) - prompts + empty;
    rig.ingest(&workload.churn);
    let churned = LIVE.load(Ordering::Relaxed) - prompts + empty;
    (
        filled as f64 / workload.filled as f64,
        churned as f64 / workload.resident as f64,
    )
}

/// Bytes of the prompts that a rig keeps.
fn prompts_of<S: Subject>(rig: &Rig<'_, S>) -> isize {
    let prompts = &rig.workload().prompts;
    let bytes: usize = prompts
        .iter()
        .map(|hashes| hashes.len() * 8 + size_of::<Vec<u64>>())
        .sum();
    bytes as isize
}
