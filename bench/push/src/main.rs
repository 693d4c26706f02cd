//! How fast a change of the fleet reaches every router, and what that costs the controller.
//!
//! `cargo run --release`, in `bench/push`. One process is the controller's push side (the fleet model, the hub and
//! the server as the product has them, over TLS); this one holds the routers' ends. A change is one worker's record
//! leaving or coming back, as its readiness makes it. The time is taken before the controller applies the record,
//! and again when a router has read the view; some routers also assemble it, follow it with their table and pick.

mod controller;
mod process;
mod routers;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use process::Usage;
use routers::Routers;

/// Changes measured for each size.
const CHANGES: usize = 200;
/// Time between changes: the fleet changes often, not all the time.
const SPACING: Duration = Duration::from_millis(20);
/// Time over which the controller's idle CPU is taken.
const IDLE: Duration = Duration::from_secs(4);
/// What the project aims at.
const TARGET_MILLIS: f64 = 100.0;
const TARGET_MIB: f64 = 300.0;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("controller") => controller::run(arguments.next().and_then(|n| n.parse().ok()).unwrap_or(16)),
        _ => measure_all(),
    }
}

fn measure_all() {
    println!(
        "### One worker's change to every router, milliseconds ({CHANGES} changes, {} ms apart)\n",
        SPACING.as_millis()
    );
    println!(
        "| workers | routers | p50 | p99 | slowest | last router p50 | last router p99 | pick p50 | pick p99 | controller CPU per change, ms | idle CPU, % of a core | memory, MiB | at most, MiB |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut met = true;
    for workers in [1_024, 4_096] {
        for routers in [50, 200] {
            met &= measure(workers, routers);
        }
    }
    println!(
        "\nTarget: p99 of the pick at most {TARGET_MILLIS} ms, at most {TARGET_MIB} MiB: {}.",
        if met { "met" } else { "MISSED" }
    );
}

fn measure(workers: u64, count: usize) -> bool {
    let mut child = Child::start(workers);
    // Dropped before the child: routers do not see it go.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut routers = runtime.block_on(Routers::connect(child.port, &child.ca, count));
    std::thread::sleep(Duration::from_secs(1));
    let before = Usage::of(child.pid);
    std::thread::sleep(IDLE);
    let idle = Usage::of(child.pid).cpu_millis - before.cpu_millis;

    let (mut each, mut last, mut picks) = (Vec::new(), Vec::new(), Vec::new());
    let before = Usage::of(child.pid);
    let began = std::time::Instant::now();
    for change in 0..CHANGES {
        let at = child.change();
        // The first view has number 1.
        let seen = runtime.block_on(routers.wait(change as u64 + 2, at));
        last.push(seen.read.iter().copied().fold(0.0, f64::max));
        each.extend(seen.read);
        picks.extend(seen.picked);
        std::thread::sleep(SPACING);
    }
    let took = began.elapsed().as_secs_f64();
    let after = Usage::of(child.pid);
    let idle_per_second = idle / IDLE.as_secs_f64();
    let cpu = (after.cpu_millis - before.cpu_millis - idle_per_second * took) / CHANGES as f64;
    let slowest = quantile(&mut each, 1.0);
    let (pick, peak) = (quantile(&mut picks, 0.99), after.peak_mib);
    println!(
        "| {workers} | {count} | {:.1} | {:.1} | {slowest:.1} | {:.1} | {:.1} | {:.1} | {pick:.1} | {cpu:.1} | {:.1} | {:.0} | {peak:.0} |",
        quantile(&mut each, 0.5),
        quantile(&mut each, 0.99),
        quantile(&mut last, 0.5),
        quantile(&mut last, 0.99),
        quantile(&mut picks, 0.5),
        idle_per_second / 10.0,
        after.mib,
    );
    pick <= TARGET_MILLIS && quantile(&mut each, 0.99) <= TARGET_MILLIS && peak <= TARGET_MIB
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = ((values.len() as f64 * part).ceil() as usize).clamp(1, values.len());
    values[place - 1]
}

/// The controller's process.
struct Child {
    pid: u32,
    port: u16,
    ca: String,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: std::process::Child,
}

impl Child {
    fn start(workers: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("own path"))
            .args(["controller", &workers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the controller starts");
        let input = process.stdin.take().expect("its input");
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        let mut ca = String::new();
        let mut port = String::new();
        output.read_line(&mut port).expect("its port");
        while !ca.contains("END CERTIFICATE") {
            output.read_line(&mut ca).expect("its certificate");
        }
        Self {
            pid: process.id(),
            port: port.trim().parse().expect("a port"),
            ca,
            input,
            output,
            process,
        }
    }

    /// Makes the next change; the time at which the controller began it.
    fn change(&mut self) -> u64 {
        self.input.write_all(b"change\n").expect("the controller listens");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the controller answers");
        line.trim().parse().expect("a time")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}
