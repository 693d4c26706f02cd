//! The last view on disk: written after changes, read once at start.
//!
//! The file is a line that says what it is for, then the parts of a whole view as they travel, each behind its length.
//! Its digest is checked when it is read, as that of any view is.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    path::PathBuf,
    sync::Arc,
};

use continuum_fleet::view::FleetView;
use continuum_messages::{Assembler, Epoch, Published, limits::MAX_FROM_CONTROLLER_BYTES, push::ViewUpdate};
use continuum_runtime::files;
use jiff::Timestamp;
use prost::Message as _;

use crate::limits::MAX_KEPT_BYTES;

const FORMAT: &str = "continuum-pushed-view-1";
const FILE: &str = "pushed-view";
/// Bytes of the first line: the format, and the names of the namespaces that the view is of.
const HEADER_BYTES: u64 = 16 << 10;

/// Where a view is kept, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) dir: PathBuf,
    pub(crate) scope: String,
}

impl Keep {
    fn header(&self) -> String {
        format!("{FORMAT} {}", self.scope.replace('\n', " "))
    }
}

/// Writes a view; a reader finds this one or the one before, never a part.
pub(crate) fn write(keep: &Keep, view: FleetView) -> io::Result<()> {
    files::replace(&keep.dir, FILE, |file| {
        writeln!(file, "{}", keep.header())?;
        let published = Arc::new(Published::first(view, Epoch::from_raw([0; 16])));
        for part in published.full() {
            file.write_all(&part.encode_length_delimited_to_vec())?;
        }
        Ok(())
    })
}

/// Reads what was kept for this scope.
pub(crate) fn read(keep: &Keep) -> io::Result<Option<Assembler>> {
    let file = match File::open(keep.dir.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() > MAX_KEPT_BYTES {
        return Err(invalid("larger than what is ever written"));
    }
    let mut file = BufReader::new(file.take(MAX_KEPT_BYTES));
    let mut header = String::new();
    file.by_ref().take(HEADER_BYTES).read_line(&mut header)?;
    if header.trim_end_matches('\n') != keep.header() {
        return Ok(None);
    }
    let mut assembler = Assembler::new();
    while let Some(part) = next_part(&mut file)? {
        let whole = assembler
            .push(part, Timestamp::now())
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        if whole.is_some() {
            return Ok(Some(assembler));
        }
    }
    Err(invalid("it ends before the view is whole"))
}

fn next_part(file: &mut impl io::Read) -> io::Result<Option<ViewUpdate>> {
    let mut length = 0_usize;
    for shift in (0..).step_by(7).take(5) {
        let mut byte = [0_u8];
        if file.read(&mut byte)? == 0 {
            return if shift == 0 {
                Ok(None)
            } else {
                Err(invalid("it ends within a length"))
            };
        }
        let [byte] = byte;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    if length > MAX_FROM_CONTROLLER_BYTES {
        return Err(invalid("a part is larger than any is"));
    }
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    ViewUpdate::decode(bytes.as_slice())
        .map(Some)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::fleet;

    fn keep(dir: &tempfile::TempDir, scope: &str) -> Keep {
        Keep {
            dir: dir.path().join("made"),
            scope: scope.to_owned(),
        }
    }

    #[test]
    fn what_was_written_is_read_for_the_same_scope_alone() {
        let dir = tempfile::tempdir().unwrap();
        let here = keep(&dir, "kubernetes ns dynamo");
        assert!(read(&here).unwrap().is_none());
        for workers in [0, 1, 3_000] {
            write(&here, fleet(workers)).unwrap();
            let kept = read(&here).unwrap().unwrap();
            assert_eq!(*kept.view(), fleet(workers));
        }
        assert!(read(&keep(&dir, "kubernetes ns other")).unwrap().is_none());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(here.dir.join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_file_is_refused_or_says_the_same(at in 0_usize..4096, byte in proptest::num::u8::ANY, cut: bool) {
            let dir = tempfile::tempdir().unwrap();
            let here = keep(&dir, "scope");
            write(&here, fleet(5)).unwrap();
            let file = here.dir.join(FILE);
            let mut bytes = fs::read(&file).unwrap();
            let at = at % bytes.len();
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] = byte;
            }
            fs::write(&file, bytes).unwrap();
            if let Ok(Some(kept)) = read(&here) {
                proptest::prop_assert_eq!(kept.view(), &fleet(5));
            }
        }
    }
}
