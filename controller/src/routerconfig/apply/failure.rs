//! Why something could not be done, in words for a condition.

use continuum_crds::{RouterConfig, conditions::Reason};

use super::ELSEWHERE;
use crate::{routerconfig::child_name, status::facts::Applied};

/// Something that could not be done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// What the API server says of an object that can be none of its kind: a field that is not there, a text for a number, a
/// quantity that is none, a key twice. It answers 500 to an apply of one, and it does so for ever.
const NO_OBJECT: [&str; 2] = [
    "failed to create typed patch object",
    "failed to convert new object",
];

/// Why the API server did not do it.
pub(crate) fn reason_of(error: &kube::Error) -> Reason {
    let kube::Error::Api(status) = error else {
        return Reason::ApiUnavailable;
    };
    // Quotas and admission answer 403 too; the authorizer names the user.
    let authorizer = status.message.contains("is forbidden: User")
        || status.message.contains("attempting to grant RBAC permissions");
    match status.code {
        403 if authorizer => Reason::Forbidden,
        500 if NO_OBJECT.iter().any(|words| status.message.starts_with(words)) => Reason::Refused,
        429 | 500.. => Reason::ApiUnavailable,
        _ => Reason::Refused,
    }
}

pub(super) fn failure(kind: &str, namespace: &str, name: &str, error: &kube::Error) -> Failure {
    let why = if let kube::Error::Api(status) = error {
        status.message.clone()
    } else {
        error.to_string()
    };
    Failure {
        reason: reason_of(error),
        message: format!("{kind} {namespace}/{name}: {why}"),
    }
}

/// The worst reason, and all messages.
pub(super) fn sum(failures: &[Failure]) -> Applied {
    let Some(worst) = failures.iter().map(|failure| failure.reason).min() else {
        return Applied::All;
    };
    let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    Applied::Failed {
        reason: worst,
        message: messages.join("; "),
    }
}

/// Why something in another namespace is still there, and what a person can do about it.
pub(super) fn left_behind(
    kind: &str,
    place: Option<&str>,
    object: &RouterConfig,
    error: &kube::Error,
) -> Failure {
    let namespace = place.unwrap_or("*");
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = child_name(object.metadata.name.as_deref().unwrap_or_default());
    let mut failure = failure(kind, namespace, &format!("{own}.{name}"), error);
    if place.is_some() && failure.reason == Reason::Forbidden {
        failure.message.push_str(&format!(
            ". It may give routers rights over a fleet that they should not have: add {namespace} to the chart's \
             fleetNamespaces until it is gone, or delete the Role and the RoleBinding {own}.{name} there and then the \
             annotation {ELSEWHERE} here"
        ));
    }
    failure
}
