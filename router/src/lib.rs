//! In the making.

pub mod backends;
pub mod cli;
pub mod dispatch;
pub mod error;
pub mod ingress;
pub mod server;
