//! What the processes of this project say to each other.
//!
//! [`push`] is generated from `proto/`. Beside it stands what both sides need to agree on: a view's content has a
//! [`Digest`], [`Published`] gives it an identity and writes it (whole, or as a difference), [`Assembler`] reads it
//! back. Card JSON does not travel: routing reads the typed fields alone.

pub mod assemble;
mod decode;
mod encode;
pub mod ids;
pub mod limits;
pub mod publish;

pub use assemble::{Assembled, Assembler};
pub use decode::Malformed;
pub use ids::{ConfigId, Digest, Epoch, ViewId};
pub use publish::{Parts, Published};

/// The session between a router and a controller: messages and stubs, generated from `proto/`.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod push {
    tonic::include_proto!("continuum.push.v1");
}
