//! Writes `docs/reference/limits.md`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    fs::write(
        root.join("docs/reference/limits.md"),
        continuum_tests::limits::page(&root)?,
    )
}
