//! Whom to choose: the load of every rank, what this router has booked on it, and the pick.
//!
//! Two halves. [`load::Store`] keeps what workers say about their load and what this router has dispatched to
//! them and not yet seen the end of. [`picker::Table`] holds the candidates of every model, built from a fleet
//! view; [`picker::pick`] reads both and answers with a pin and the reason for it.
//!
//! Nothing here asks the time or draws a random number: `now` and seeds are arguments. A pick takes no lock that
//! a writer of the store can hold, awaits nothing, and allocates nothing per candidate.

pub mod limits;
pub mod load;
pub mod picker;
#[cfg(test)]
mod rig;
mod time;

pub use time::Millis;
