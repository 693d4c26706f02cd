//! What one look over a request body costs.
//!
//! ```text
//! cargo run --release -p continuum-router --example body_scan
//! ```
//!
//! Prints microseconds per body, best of several rounds: 1 KiB and 64 KiB prompts of English prose, of text
//! with an escape every 60 characters, of Korean, and a body with fields to remove.

use std::{
    hint::black_box,
    io::Write,
    time::{Duration, Instant},
};

use bytes::Bytes;
use continuum_router::ingress::{body::inspect, strip::Disclosure};

const ROUNDS: usize = 20;
const ROUND: Duration = Duration::from_millis(20);

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let prose = "The quick brown fox jumps over the lazy dog and runs on. ";
    let lines = "The quick brown fox jumps over the lazy dog, and runs on.\\n";
    let korean = "다람쥐 헌 쳇바퀴에 타고파 ";
    for size in [1024, 64 * 1024] {
        for (name, text) in [("prose", prose), ("lines", lines), ("korean", korean)] {
            let prompt = text.repeat(size / text.len());
            let body = format!(
                r#"{{"model":"Qwen/Qwen3-0.6B","messages":[{{"role":"user","content":"{prompt}"}}],"max_tokens":128,"stream":true}}"#
            );
            measure(&mut out, &format!("{name} {} B", body.len()), &body)?;
        }
        let tools = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
        let body = format!(
            r#"{{"model":"m","messages":[],"tools":[{}]}}"#,
            vec![tools; size / tools.len()].join(",")
        );
        measure(&mut out, &format!("tools {} B", body.len()), &body)?;
    }
    let pinned = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"nvext":{"dp_rank":1,"token_data":[1,2,3],"extra_fields":["timing","worker_id"]}}"#;
    measure(&mut out, "pinned by the client", pinned)
}

fn measure(out: &mut impl Write, name: &str, body: &str) -> std::io::Result<()> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let (begin, mut done) = (Instant::now(), 0_u32);
        while begin.elapsed() < ROUND {
            for _ in 0..16 {
                if let Ok(found) = inspect(black_box(&body), Disclosure::Hidden) {
                    black_box(found.outbound(&body, None));
                }
            }
            done += 16;
        }
        best = best.min(begin.elapsed().as_secs_f64() / f64::from(done));
    }
    writeln!(out, "{name:>24}  {:>8.2} us", best * 1e6)
}
