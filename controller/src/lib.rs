//! The operator: `RouterConfig` resources in, routers running, fleet views pushed, the truth in status.

pub mod push;
