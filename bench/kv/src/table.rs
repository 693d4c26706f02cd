//! Ratios to the peer, with what they must reach.

/// A ratio of ours to the peer's.
pub struct Ratio {
    pub what: String,
    pub ours: f64,
    pub peer: f64,
    /// Digits behind the point.
    pub digits: usize,
    pub ratio: f64,
    pub bar: Option<Bar>,
}

/// What a ratio must reach, and what it should.
#[derive(Clone, Copy)]
pub enum Bar {
    AtLeast(f64, f64),
    AtMost(f64, f64),
}

impl Bar {
    const fn met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(gate, _) => ratio >= gate,
            Self::AtMost(gate, _) => ratio <= gate,
        }
    }

    const fn reached(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(_, aim) => ratio >= aim,
            Self::AtMost(_, aim) => ratio <= aim,
        }
    }
}

/// Prints the table, and says whether every gate is met.
pub fn print(peer: &str, rows: &[Ratio]) -> bool {
    println!("| | ours | {peer} | ratio | gate | aim | |");
    println!("|---|---|---|---|---|---|---|");
    let mut good = true;
    for row in rows {
        let (gate, verdict) = match row.bar {
            None => ("| ".to_owned(), ""),
            Some(bar) => {
                let (sign, gate, aim) = match bar {
                    Bar::AtLeast(gate, aim) => ('≥', gate, aim),
                    Bar::AtMost(gate, aim) => ('≤', gate, aim),
                };
                good &= bar.met(row.ratio);
                let verdict = match (bar.met(row.ratio), bar.reached(row.ratio)) {
                    (true, true) => "aim",
                    (true, false) => "gate",
                    (false, _) => "**below**",
                };
                (format!("{sign} {gate} | {sign} {aim}"), verdict)
            }
        };
        println!(
            "| {} | {:.*} | {:.*} | {:.2} | {gate} | {verdict} |",
            row.what, row.digits, row.ours, row.digits, row.peer, row.ratio
        );
    }
    good
}
