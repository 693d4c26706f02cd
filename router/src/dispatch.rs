//! From an outbound request to an answer on its way to the client.
//!
//! `serve` is the loop: choose a replica, send, look at what came back ([`refusal`]), decide ([`retry`]), and hand
//! the answer to [`relay`]. Who is picked, and which bytes and headers leave, is decided elsewhere.

mod clock;
mod events;
pub mod limits;
pub mod metrics;
pub mod refusal;
pub mod relay;
pub mod retry;
pub mod send;
pub mod serve;
