//! The router's side of the session with its controllers.
//!
//! Every address behind the controllers' name gets a session. One of them is followed: the view of the fleet and the
//! configuration come from there. All of them are reported to. When the followed one falls silent another is followed
//! at once, and it sends nothing while what it has is what this router has.
//!
//! What must not happen: that anything here stops a router from routing. Without a controller the last view and the
//! last configuration stay.

mod addresses;
mod client;
mod connect;
mod error;
mod hub;
mod kept;
pub mod limits;
pub mod metrics;
mod peers;
mod report;
mod session;
mod settings;
mod status;
#[cfg(test)]
mod testing;
mod view;

pub use addresses::{Lookup, system};
pub use client::Client;
pub use continuum_messages::{ConfigId, ViewId};
pub use error::{Error, Reason};
pub use report::{Counts, Pool, Report, Source, Subscriptions};
pub use settings::Settings;
pub use status::{Session, SessionState, Status};
pub use view::{Pushed, Update};
