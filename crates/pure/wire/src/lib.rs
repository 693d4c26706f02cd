//! What workers say: the bytes of a Dynamo event plane, without a socket.
//!
//! ```text
//! bytes ─ zmtp::Subscriber ─▶ Message (≤ 4 frames) ─ Delivery::decode ─▶ payload ┬ ActiveLoad::decode ─▶ sample
//!                                                                                  └ router_event::Batch ─▶ events
//! ```
//!
//! Every peer address comes from a record that somebody else wrote, so all bytes here are hostile: a length
//! is judged before memory is taken for it, and memory grows with the bytes that really came. Nothing in
//! this crate keeps time, opens a socket or decides what a sample is worth.

#![deny(clippy::indexing_slicing)]

pub mod active_load;
pub mod budget;
pub mod envelope;
pub mod limits;
mod msgpack;
pub mod refusal;
pub mod router_event;
pub mod subject;
pub mod zmtp;

pub use active_load::ActiveLoad;
pub use budget::Budget;
pub use envelope::{Delivery, Expected};
pub use limits::Limits;
pub use refusal::Refusal;
pub use router_event::RouterEvent;
