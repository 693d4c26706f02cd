//! The data plane binary.
fn main() {}
