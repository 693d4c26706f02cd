//! What tests of several crates share. Not part of the product: code here may panic with a clear word.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot go on should say why and stop"
)]

pub mod etcd;
pub mod fuzz;
#[cfg(feature = "kube")]
pub mod kube;
pub mod loopback;
mod process;
pub mod stub;
pub mod view;
