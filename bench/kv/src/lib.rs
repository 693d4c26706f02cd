//! KV indexes side by side: ours and the fastest of `dynamo-kv-router`, on one seeded workload in one run.

pub mod measure;
pub mod shapes;
pub mod subjects;
pub mod table;
pub mod workload;
