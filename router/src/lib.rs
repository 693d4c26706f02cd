//! The data plane: takes requests of OpenAI clients, pins each to workers of a Dynamo fleet, relays the answer.

pub mod admin;
pub mod app;
pub mod backends;
pub mod cli;
#[cfg(feature = "dynamo")]
pub mod controllers;
pub mod dispatch;
pub mod error;
#[cfg(feature = "dynamo")]
pub mod fleet;
#[cfg(feature = "dynamo")]
pub(crate) mod in_use;
pub mod ingress;
#[cfg(feature = "dynamo")]
pub mod kv_index;
pub mod live;
pub mod metrics;
#[cfg(feature = "dynamo")]
#[cfg_attr(not(feature = "dynamo-kv"), path = "prompts/off.rs")]
pub mod prompts;
pub mod proxy;
pub mod reload;
pub mod run;
#[cfg(feature = "dynamo")]
pub mod select;
pub mod server;
