//! Names and labels of what belongs to a `RouterConfig`.

use std::collections::BTreeMap;

/// What the name of every child ends with: `chat` has `chat-router`.
const SUFFIX: &str = "-router";
/// Who writes children.
pub const FIELD_MANAGER: &str = "continuum-controller";
/// Set on a RouterConfig while something of it is outside its namespace.
pub const FINALIZER: &str = "router.continuum.dev/fleet-namespace";
/// On children outside the RouterConfig's namespace, where no owner reference can be: the owner's uid.
pub const OWNER_UID: &str = "router.continuum.dev/owner-uid";
/// On children outside the RouterConfig's namespace: the owner's namespace.
pub const OWNER_NAMESPACE: &str = "router.continuum.dev/owner-namespace";

/// The name of every child.
#[must_use]
pub fn child(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// The `RouterConfig` that a child of this name belongs to.
#[must_use]
pub fn owner_of(child: &str) -> Option<&str> {
    child.strip_suffix(SUFFIX).filter(|name| !name.is_empty())
}

/// The labels that select router pods.
#[must_use]
pub fn selector(name: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "continuum-router"),
        ("app.kubernetes.io/instance", name),
        ("app.kubernetes.io/component", "router"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// The labels of every child.
#[must_use]
pub fn labels(name: &str) -> BTreeMap<String, String> {
    let mut labels = selector(name);
    labels.insert(
        "app.kubernetes.io/managed-by".to_owned(),
        FIELD_MANAGER.to_owned(),
    );
    labels
}

/// Labels as the query of a list or of the scale subresource.
#[must_use]
pub fn query(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_names_its_owner() {
        assert_eq!(owner_of(&child("chat")), Some("chat"));
        assert_eq!(owner_of("chat-router-router"), Some("chat-router"));
        assert_eq!(owner_of("-router"), None);
        assert_eq!(owner_of("default"), None);
    }
}
