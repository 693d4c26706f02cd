//! Writes the files that are made from the configuration's model: the reference page and the JSON Schema.
//! `cargo run -p continuum-config --example reference`, from anywhere in the repository.

use std::{fs, io, path::Path};

use continuum_config::{reference, schema};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("configuration.md"), reference::markdown())?;
    fs::write(folder.join("continuum-router.schema.json"), schema::json())
}
