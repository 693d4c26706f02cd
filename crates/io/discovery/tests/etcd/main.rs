//! The etcd source against real etcd: what a router finds, keeps, and survives.

mod auth;
mod cluster;
mod fleet;
mod reload;
mod scale;
mod support;
mod tls;
