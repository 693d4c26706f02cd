//! In the making.

pub mod dispatch;
