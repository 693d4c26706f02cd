//! What the processes of this project say to each other.

/// The session between a router and a controller: messages and stubs, generated from `proto/`.
#[expect(missing_docs, unused_qualifications, clippy::all, reason = "generated code")]
pub mod push {
    tonic::include_proto!("continuum.push.v1");
}
