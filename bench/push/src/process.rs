//! CPU time and memory of a process, and a clock that two processes share.

use std::fs;

/// What a process has used.
pub struct Usage {
    pub cpu_millis: f64,
    pub mib: f64,
    pub peak_mib: f64,
}

impl Usage {
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mib = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default();
            line.split_whitespace()
                .next()
                .and_then(|n| n.parse::<f64>().ok())
                .unwrap_or(0.0)
                / 1_024.0
        };
        Self {
            cpu_millis: cpu_nanos(pid) / 1e6,
            mib: mib("VmRSS:"),
            peak_mib: mib("VmHWM:"),
        }
    }
}

/// CPU time of all threads, finer than the ticks of `stat`. Threads that ended are missing; none do here.
fn cpu_nanos(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()))
        .sum()
}

/// Nanoseconds of the machine's monotonic clock, the same in every process.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call, which writes it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
