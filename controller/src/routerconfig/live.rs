//! The children as the watches have them, so that looking at one costs the API server nothing.

mod look;

use std::sync::Arc;

use futures::FutureExt as _;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::reflector::{ObjectRef, Store},
};

pub(crate) use self::look::{Look, kept, wanted};

/// What the watches of children have seen.
#[derive(Default)]
pub(crate) struct Live {
    kept: Vec<Kept>,
}

/// One kind in one namespace, or in all of them.
struct Kept {
    namespace: Option<String>,
    kind: String,
    store: Store<Look>,
}

/// A child as it was right after it had been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What was wanted.
    pub(crate) wanted: Digest,
    /// What the API server made of it.
    pub(crate) live: Digest,
    /// Its resource version.
    pub(crate) version: u64,
}

/// A hash of some content.
pub(crate) type Digest = [u8; 32];

impl Live {
    pub(crate) fn add(&mut self, namespace: Option<&str>, kind: &ApiResource, store: Store<Look>) {
        self.kept.push(Kept {
            namespace: namespace.map(str::to_owned),
            kind: kind.kind.clone(),
            store,
        });
    }

    /// A child, out of the watches where they know it, else by a request: they are not told of what is not labelled as
    /// a child, and not all kinds and namespaces are watched.
    pub(crate) async fn fetch(
        &self,
        client: &Client,
        kind: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Look>>, kube::Error> {
        let reference = ObjectRef::new_with(name, kind.clone()).within(namespace);
        let known = self
            .kept
            .iter()
            .filter(|kept| kept.kind == kind.kind)
            .filter(|kept| kept.namespace.as_deref().is_none_or(|only| only == namespace))
            // Before its first list is whole, a store is no proof of anything.
            .filter(|kept| {
                kept.store
                    .wait_until_ready()
                    .now_or_never()
                    .is_some_and(|ready| ready.is_ok())
            })
            .find_map(|kept| kept.store.get(&reference));
        if known.is_some() {
            return Ok(known);
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
        Ok(api.get_opt(name).await?.map(|there| Arc::new(Look::of(&there))))
    }
}

impl Settled {
    pub(crate) fn of(wanted: Digest, live: &Look) -> Self {
        Self {
            wanted,
            live: live.content,
            version: live.version(),
        }
    }

    /// Whether applying `wanted` once more would change nothing of the child as it is seen `there`.
    pub(crate) fn holds(&self, wanted: Digest, there: &Look) -> bool {
        // A watch that has not heard of our own write yet shows something older.
        self.wanted == wanted && (there.version() < self.version || there.content == self.live)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(version: u64, replicas: u32, ready: u32) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "chat-router", "resourceVersion": version.to_string(), "generation": version },
            "spec": { "replicas": replicas },
            "status": { "readyReplicas": ready },
        }))
        .unwrap()
    }

    fn look(version: u64, replicas: u32, ready: u32) -> Look {
        Look::of(&deployment(version, replicas, ready))
    }

    #[test]
    fn a_child_is_applied_again_when_something_other_than_its_status_moves() {
        let want = wanted(&deployment(0, 2, 0));
        let settled = Settled::of(want, &look(10, 2, 0));
        assert!(settled.holds(want, &look(10, 2, 0)));
        assert!(settled.holds(want, &look(12, 2, 2)), "a status");
        assert!(!settled.holds(want, &look(12, 3, 2)), "an edit");
        assert!(
            settled.holds(want, &look(9, 1, 0)),
            "what we overwrote, seen late"
        );
        assert!(!settled.holds(wanted(&deployment(0, 3, 0)), &look(10, 2, 0)));
    }
}
