//! The rules of picking, one by one.

mod choice;
mod fleet;
mod naive;
mod prompt;
