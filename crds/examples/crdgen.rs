//! Writes what is made from the types of the custom resource: its definition and its pages.
//! `cargo run -p continuum-crds --example crdgen`, from anywhere in the repository.

use std::{fs, io, path::Path};

use continuum_crds::{reference, yaml};

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(here.join("yaml"))?;
    fs::write(here.join("yaml/routerconfigs.yaml"), yaml())?;
    let docs = here.join("../docs");
    fs::write(docs.join("reference/routerconfig.md"), reference::routerconfig())?;
    fs::write(docs.join("conditions.md"), reference::conditions())
}
