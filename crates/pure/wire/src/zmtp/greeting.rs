//! The 64 bytes that open a connection.

use super::Error;
use crate::limits::GREETING_BYTES;

const MECHANISM: &[u8; 4] = b"NULL";

/// What we send: ZMTP 3.1, NULL, as client.
pub(super) fn ours() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    let fixed = [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
    for (slot, byte) in greeting.iter_mut().zip(fixed.iter().chain(MECHANISM)) {
        *slot = *byte;
    }
    greeting
}

/// Judges as much of a greeting as has come, so that a peer of another protocol is cut at its first byte.
/// Padding of the signature, the as-server flag and the filler carry no meaning with NULL.
pub(super) fn check(so_far: &[u8]) -> Result<(), Error> {
    for (at, byte) in so_far.iter().enumerate() {
        match at {
            0 if *byte != 0xff => return Err(Error::NotZmtp),
            9 if *byte != 0x7f => return Err(Error::NotZmtp),
            10 if *byte < 3 => return Err(Error::OldVersion),
            12..32 if *byte != MECHANISM.get(at - 12).copied().unwrap_or(0) => return Err(Error::Mechanism),
            _ => {}
        }
    }
    Ok(())
}

/// The minor version of a complete greeting; later majors speak at least 3.1 with us.
pub(super) fn minor(greeting: &[u8]) -> u8 {
    match (greeting.get(10), greeting.get(11)) {
        (Some(3), Some(minor)) => *minor,
        _ => 1,
    }
}
