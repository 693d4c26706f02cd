//! Who a router is, as the API server says: TokenReview of its projected ServiceAccount token.

use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    push::{AuthError, Authenticator, Identity, Key, Pod},
    routerconfig::owner_of,
};

/// The audience of the tokens: no other service's token is accepted, and a router's is of no use elsewhere.
pub const AUDIENCE: &str = "continuum-router-controller";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const ACCOUNT: &str = "system:serviceaccount:";

/// Reviews tokens with the API server.
pub struct Reviewer {
    api: Api<TokenReview>,
}

impl Reviewer {
    /// Needs `create` on `tokenreviews.authentication.k8s.io`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
        }
    }
}

impl Authenticator for Reviewer {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>> {
        async move {
            let review = TokenReview {
                metadata: ObjectMeta::default(),
                spec: TokenReviewSpec {
                    audiences: Some(vec![AUDIENCE.to_owned()]),
                    token: token.to_owned(),
                },
                status: None,
            };
            let answer = self.api.create(&PostParams::default(), &review).await;
            let answer = answer.map_err(|error| AuthError::Unavailable(error.to_string()))?;
            identity(answer.status.unwrap_or_default()).map_err(|why| AuthError::Refused(why.to_owned()))
        }
        .boxed()
    }
}

/// The router pod that a review speaks of.
fn identity(status: TokenReviewStatus) -> Result<Identity, &'static str> {
    if status.authenticated != Some(true) {
        return Err("the API server does not accept the token");
    }
    let audiences = status.audiences.unwrap_or_default();
    if !audiences.iter().any(|audience| audience == AUDIENCE) {
        return Err("the token was made for another audience");
    }
    let user = status.user.unwrap_or_default();
    let account = user
        .username
        .as_deref()
        .and_then(|name| name.strip_prefix(ACCOUNT));
    let (namespace, account) = account
        .and_then(|name| name.split_once(':'))
        .ok_or("the token is not of a ServiceAccount")?;
    let name = owner_of(account).ok_or("the ServiceAccount is not of a RouterConfig")?;
    let extra = user.extra.unwrap_or_default();
    let first = |key: &str| {
        extra
            .get(key)
            .and_then(|values| values.first())
            .map(String::as_str)
    };
    let (Some(pod), Some(uid)) = (first(POD_NAME), first(POD_UID)) else {
        return Err("the token is not bound to a pod");
    };
    Ok(Identity {
        key: Key {
            namespace: namespace.into(),
            name: name.into(),
        },
        pod: Pod {
            name: pod.into(),
            uid: uid.into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    fn review(username: &str, audience: &str, bound: bool) -> TokenReviewStatus {
        let extra = [(POD_NAME, "chat-router-1"), (POD_UID, "u1")];
        let extra = extra.map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![audience.to_owned()]),
            user: Some(UserInfo {
                username: Some(username.to_owned()),
                extra: Some(if bound {
                    BTreeMap::from(extra)
                } else {
                    BTreeMap::new()
                }),
                ..UserInfo::default()
            }),
            error: None,
        }
    }

    #[test]
    fn only_a_router_pods_own_token_names_it() {
        let good = identity(review("system:serviceaccount:dynamo:chat-router", AUDIENCE, true)).unwrap();
        assert_eq!(good.key.to_string(), "dynamo/chat");
        assert_eq!(&*good.pod.uid, "u1");
        for bad in [
            TokenReviewStatus::default(),
            review(
                "system:serviceaccount:dynamo:chat-router",
                "https://kubernetes.default.svc",
                true,
            ),
            review("system:serviceaccount:dynamo:chat-router", AUDIENCE, false),
            review("system:serviceaccount:dynamo:default", AUDIENCE, true),
            review("system:serviceaccount:dynamo:-router", AUDIENCE, true),
            review("system:node:n1", AUDIENCE, true),
        ] {
            assert!(identity(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
