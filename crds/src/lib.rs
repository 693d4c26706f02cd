//! What users write in Kubernetes: the `RouterConfig` resource.
