//! Fetched files on disk, by what is in them: `blobs/<checksum>` below a folder that only the router's user can read.
//!
//! A file is believed only as far as its content goes: it is hashed at each read, and one that does not match is as
//! good as none.

use std::{
    io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{artifact::Checksum, fetch};

/// A folder of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    blobs: PathBuf,
}

impl Store {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            blobs: dir.join("blobs"),
        }
    }

    /// The file with this content, if it is there and has it.
    pub(crate) fn find(&self, checksum: Checksum, cap: u64) -> Option<Bytes> {
        let content = fetch::read(&self.blobs.join(checksum.hex()), cap).ok()?;
        (Checksum::of(&content) == checksum).then_some(content)
    }

    /// Keeps a file. Its content has been compared with the checksum.
    pub(crate) fn keep(&self, checksum: Checksum, content: &[u8]) -> io::Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.blobs)?;
        if std::fs::metadata(&self.blobs)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(&self.blobs, std::fs::Permissions::from_mode(0o700))?;
        }
        continuum_runtime::files::replace(&self.blobs, &checksum.hex(), |file| file.write_all(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_its_content_and_only_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("cache"));
        let checksum = Checksum::of(b"content");
        assert_eq!(store.find(checksum, 100), None);
        store.keep(checksum, b"content").unwrap();
        assert_eq!(store.find(checksum, 100), Some(Bytes::from_static(b"content")));
        assert_eq!(store.find(checksum, 6), None, "over the cap");

        let blobs = dir.path().join("cache/blobs");
        let file = blobs.join(checksum.hex());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&blobs), mode(&file)), (0o700, 0o600));

        std::fs::write(&file, b"tampered").unwrap();
        assert_eq!(store.find(checksum, 100), None);
        store.keep(checksum, b"content").unwrap();
        assert!(store.find(checksum, 100).is_some());
    }

    #[test]
    fn a_folder_that_others_could_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = dir.path().join("blobs");
        std::fs::create_dir(&blobs).unwrap();
        std::fs::set_permissions(&blobs, std::fs::Permissions::from_mode(0o755)).unwrap();
        Store::new(dir.path()).keep(Checksum::of(b"x"), b"x").unwrap();
        assert_eq!(
            std::fs::metadata(&blobs).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
