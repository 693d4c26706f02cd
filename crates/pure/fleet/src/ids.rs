//! Names and numbers that identify things in a Dynamo fleet.
//!
//! An instance id is a JSON number or hex text in records, decimal in `x-dynamo-*` headers (the frontend
//! ignores hex without a word) and lower-case hex in registry keys and metrics. None of the id types here
//! has a default text form, so that every caller has to choose one.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Why a text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty or holds a byte that is not a digit of the expected base.
    #[error("not a number in the expected base")]
    NotDigits,
    /// The number does not fit 64 bits.
    #[error("does not fit 64 bits")]
    Range,
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a raw id.
            #[must_use]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The raw 64 bits.
            #[must_use]
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// Reads hex digits of either case, without `0x`; leading zeros are fine.
            ///
            /// # Errors
            /// [`IdError::NotDigits`] for an empty or foreign text, [`IdError::Range`] above 64 bits.
            pub fn parse_hex(text: &str) -> Result<Self, IdError> {
                parse(text, 16).map(Self)
            }

            /// Reads decimal digits.
            ///
            /// # Errors
            /// As [`Self::parse_hex`].
            pub fn parse_decimal(text: &str) -> Result<Self, IdError> {
                parse(text, 10).map(Self)
            }

            /// Lower-case hex without padding: registry keys, metrics, the admin view.
            #[must_use]
            pub fn hex(self) -> String {
                format!("{:x}", self.0)
            }

            /// Decimal: `x-dynamo-*` headers and the frontend's own `GET /health`.
            #[must_use]
            pub fn decimal(self) -> String {
                self.0.to_string()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:x})"), self.0)
            }
        }
    };
}

id_type! {
    /// One Dynamo process that serves endpoints: its etcd lease id, or a hash of its Pod name.
    InstanceId
}

id_type! {
    /// One publisher object of an event plane channel. Not an instance: a process may hold several.
    PublisherId
}

fn parse(text: &str, radix: u32) -> Result<u64, IdError> {
    if text.is_empty() || !text.bytes().all(|b| char::from(b).is_digit(radix)) {
        return Err(IdError::NotDigits);
    }
    u64::from_str_radix(text, radix).map_err(|_| IdError::Range)
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a name; cloning it later copies no text.
            #[must_use]
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
    };
}

name_type! {
    /// The Dynamo namespace that a worker registered in, generation suffix included.
    Namespace
}

name_type! {
    /// The configured namespace: the workers behind it, of all generations, share one shim pool.
    Graph
}

name_type! {
    /// A model name as clients and frontends spell it.
    ModelName
}

/// The global data-parallel rank of a worker. The unit of load, cache and picking is (worker, rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// A worker. An instance id means nothing without the namespace it was registered in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey {
    /// The worker's own namespace.
    pub namespace: Namespace,
    /// Its instance id.
    pub instance: InstanceId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_the_base_that_the_caller_names() {
        assert_eq!(InstanceId::parse_hex("1a7f2b"), Ok(InstanceId::new(1_736_491)));
        assert_eq!(InstanceId::parse_hex("001A7F2B"), Ok(InstanceId::new(1_736_491)));
        assert_eq!(
            InstanceId::parse_decimal("1736491"),
            Ok(InstanceId::new(1_736_491))
        );
        assert_eq!(InstanceId::new(1_736_491).hex(), "1a7f2b");
        assert_eq!(InstanceId::new(u64::MAX).decimal(), "18446744073709551615");
        for text in ["", "0x1a", "+1", "-1", " 1", "1g"] {
            assert_eq!(InstanceId::parse_hex(text), Err(IdError::NotDigits), "{text:?}");
        }
        assert_eq!(InstanceId::parse_hex("1ffffffffffffffff"), Err(IdError::Range));
        assert_eq!(
            InstanceId::parse_decimal("18446744073709551616"),
            Err(IdError::Range)
        );
    }
}
