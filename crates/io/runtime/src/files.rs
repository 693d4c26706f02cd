//! Files that are there as a whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter},
    path::Path,
};

/// Writes a file for its owner alone, making the directory where it is missing. A reader finds this one or the one
/// before, never a part: not even after a crash.
///
/// # Errors
/// The directory or the file cannot be written, or `content` fails; then the file before is still there.
pub fn replace(
    dir: &Path,
    name: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let unfinished = dir.join(format!("{name}.tmp"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = BufWriter::new(options.open(&unfinished)?);
    content(&mut file)?;
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    fs::rename(&unfinished, dir.join(name))
}
