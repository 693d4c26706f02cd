//! What names a view and a config: who numbered it, and what is in it.

use std::fmt;

use bytes::Bytes;

use crate::push;

/// Digest (BLAKE3) of a content. Equal digests are equal contents, whoever made them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// One life of a controller replica: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch([u8; 16]);

/// Identity of a fleet view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewId {
    /// Who numbered it.
    pub epoch: Epoch,
    /// Moves on with each change of the content within an epoch.
    pub number: u64,
    /// What is in it.
    pub digest: Digest,
}

/// Identity of a config text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigId {
    /// `metadata.generation` of the `RouterConfig` that it was made from.
    pub generation: i64,
    /// Of the text.
    pub digest: Digest,
}

/// An id that has not the length that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an identity has not the right length")]
pub struct Error;

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Wraps what a hasher gave.
    #[must_use]
    pub const fn from_raw(raw: [u8; 32]) -> Self {
        Self(raw)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn to_wire(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    pub(crate) fn from_wire(bytes: &[u8]) -> Result<Self, Error> {
        bytes.try_into().map(Self).map_err(|_length| Error)
    }
}

impl Epoch {
    /// Wraps random bytes.
    #[must_use]
    pub const fn from_raw(raw: [u8; 16]) -> Self {
        Self(raw)
    }

    /// For `Welcome`.
    #[must_use]
    pub fn to_wire(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

impl ConfigId {
    /// The identity of a text.
    #[must_use]
    pub fn of(generation: i64, text: &str) -> Self {
        Self {
            generation,
            digest: Digest::of(text.as_bytes()),
        }
    }
}

impl From<ViewId> for push::ViewId {
    fn from(id: ViewId) -> Self {
        Self {
            epoch: id.epoch.to_wire(),
            number: id.number,
            digest: id.digest.to_wire(),
        }
    }
}

impl TryFrom<&push::ViewId> for ViewId {
    type Error = Error;

    fn try_from(id: &push::ViewId) -> Result<Self, Error> {
        Ok(Self {
            epoch: Epoch(id.epoch.as_ref().try_into().map_err(|_length| Error)?),
            number: id.number,
            digest: Digest::from_wire(&id.digest)?,
        })
    }
}

impl From<ConfigId> for push::ConfigId {
    fn from(id: ConfigId) -> Self {
        Self {
            generation: id.generation,
            digest: id.digest.to_wire(),
        }
    }
}

impl TryFrom<&push::ConfigId> for ConfigId {
    type Error = Error;

    fn try_from(id: &push::ConfigId) -> Result<Self, Error> {
        Ok(Self {
            generation: id.generation,
            digest: Digest::from_wire(&id.digest)?,
        })
    }
}

/// The first half of the hex: enough for logs.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Epoch(")?;
        self.0
            .iter()
            .take(4)
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
