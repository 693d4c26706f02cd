//! Writes `docs/reference/metrics.md` and `docs/reference/controller-metrics.md`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let pages = root.join("docs/reference");
    fs::write(pages.join("metrics.md"), continuum_tests::metrics::page())?;
    let controller = continuum_tests::metrics::controller_page().map_err(io::Error::other)?;
    fs::write(pages.join("controller-metrics.md"), controller)
}
