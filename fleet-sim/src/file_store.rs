//! Registers workers in a Dynamo file store: `<root>/v1/<bucket>/<percent-encoded key>`, alive while the file is
//! younger than ten seconds.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::records::{Record, file_name};

/// How often a real writer touches its files.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// A file store that this process writes to.
#[derive(Clone, Debug)]
pub(crate) struct FileStore {
    root: PathBuf,
}

impl FileStore {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Writes a record the way Dynamo does: whole, then renamed into place.
    pub(crate) fn put(&self, record: &Record) -> io::Result<()> {
        let path = self.path(record);
        let folder = path.parent().unwrap_or(&self.root);
        std::fs::create_dir_all(folder)?;
        let temporary = folder.join(format!(".tmp_{}", file_name(&record.key)));
        std::fs::write(&temporary, record.value.to_string())?;
        std::fs::rename(temporary, path)
    }

    /// Keeps a record alive.
    pub(crate) fn touch(&self, record: &Record) -> io::Result<()> {
        std::fs::File::options()
            .append(true)
            .open(self.path(record))?
            .set_modified(SystemTime::now())
    }

    pub(crate) fn delete(&self, record: &Record) -> io::Result<()> {
        std::fs::remove_file(self.path(record))
    }

    fn path(&self, record: &Record) -> PathBuf {
        self.root.join(record.bucket).join(file_name(&record.key))
    }
}
