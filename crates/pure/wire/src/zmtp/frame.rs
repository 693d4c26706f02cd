//! Frame heads.

use super::Error;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What the head of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) more: bool,
    pub(super) command: bool,
    pub(super) len: u64,
}

/// Longest head: flags and eight bytes of length.
pub(super) const MAX_HEAD_BYTES: usize = 9;

/// Reads a head once it is complete.
pub(super) fn head(bytes: &[u8]) -> Result<Option<Head>, Error> {
    let Some((flags, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return Err(Error::ReservedBits);
    }
    let (more, command) = (flags & MORE != 0, flags & COMMAND != 0);
    if more && command {
        return Err(Error::SplitCommand);
    }
    let len = if flags & LONG == 0 {
        rest.first().map(|len| u64::from(*len))
    } else {
        rest.first_chunk::<8>().map(|len| u64::from_be_bytes(*len))
    };
    Ok(len.map(|len| Head { more, command, len }))
}

/// Appends one message, one frame per element.
pub fn write_message(frames: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    for (at, frame) in frames.iter().enumerate() {
        let more = if at + 1 < frames.len() { MORE } else { 0 };
        write(more, &[frame.as_ref()], out);
    }
}

/// Appends a command frame made of parts.
pub(super) fn write_command(parts: &[&[u8]], out: &mut Vec<u8>) {
    write(COMMAND, parts, out);
}

fn write(flags: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    match u8::try_from(len) {
        Ok(short) => out.extend_from_slice(&[flags, short]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&u64::try_from(len).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
}
