//! The operator's process.

fn main() {}
