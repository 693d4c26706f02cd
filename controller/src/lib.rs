//! The operator: `RouterConfig` resources in, routers running, fleet views pushed, the truth in status.

pub mod api;
pub mod app;
pub mod auth;
pub mod certs;
pub mod cli;
pub mod fleet;
pub mod health;
pub mod leader;
pub mod metrics;
pub mod push;
pub mod routerconfig;
pub mod status;
