//! What a prompt is to the workers: rendered, tokenized and hashed in blocks, as the frontend will do it.
//!
//! ```text
//! FleetView ─▶ slots (what each model's workers offer) ─▶ artifacts (pin, fetch, check, keep) ─▶ loaded models
//! body ─▶ messages (as the frontend reads them) ─▶ template ─▶ text ─▶ token ids ─▶ block hashes
//! ```
//!
//! Tokenizers and templates are files that the fleet names. They are read, kept, parsed and run only when the
//! operator has pinned their checksum; see `docs/adr/pinned-artifacts.md`. Everything that costs time runs on the
//! blocking pool, under a number of permits and a deadline, and everything that can go wrong is an [`Unavailable`]:
//! then the request is chosen a worker by load. This crate holds no routing rule.

pub mod artifact;
pub mod fetch;
pub mod hashing;
pub mod limits;
pub mod metrics;
pub mod offers;

mod ask;
mod body;
mod catalog;
mod follow;
mod json;
mod load;
mod model;
mod permits;
mod prompts;
mod settings;
mod store;
mod template;
mod tokenizer;

pub use ask::{Ask, Endpoint, Prepared, Unavailable};
pub use body::readable;
pub use fetch::Hub;
pub use metrics::{Metrics, Outcome};
pub use prompts::Prompts;
pub use settings::Settings;
