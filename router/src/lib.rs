//! In the making.

pub mod dispatch;
pub mod error;
pub mod ingress;
