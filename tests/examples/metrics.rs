//! Writes `docs/reference/metrics.md`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    fs::write(
        root.join("docs/reference/metrics.md"),
        continuum_tests::metrics::page(),
    )
}
