//! Who a router is, as the API server says: TokenReview of its projected ServiceAccount token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use serde::Deserialize;

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

/// What a token says of itself, as far as it matters here.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Audience,
    #[serde(default)]
    sub: String,
}

/// One audience, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Audience {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Many(many) => many.iter().any(|one| one == name),
        }
    }
}

impl Authenticator for Reviewer {
    fn plausible(&self, token: &str) -> Result<(), AuthError> {
        plausible(token).map_err(|why| AuthError::Refused(why.to_owned()))
    }

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

/// Whether it is worth asking about a token: nothing that it says is proven, and what it says against itself need not be.
fn plausible(token: &str) -> Result<(), &'static str> {
    let mut parts = token.split('.');
    let (Some(_head), Some(claims), Some(_signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("the token is not of a ServiceAccount");
    };
    let claims = URL_SAFE_NO_PAD
        .decode(claims)
        .map_err(|_not_base64| "the token is not of a ServiceAccount")?;
    let claims: Claims =
        serde_json::from_slice(&claims).map_err(|_not_json| "the token is not of a ServiceAccount")?;
    if !claims.aud.has(AUDIENCE) {
        return Err("the token was made for another audience");
    }
    account(&claims.sub).map(drop)
}

/// Namespace and RouterConfig of a router's ServiceAccount.
fn account(username: &str) -> Result<(&str, &str), &'static str> {
    let (namespace, account) = username
        .strip_prefix(ACCOUNT)
        .and_then(|name| name.split_once(':'))
        .ok_or("the token is not of a ServiceAccount")?;
    let name = owner_of(account).ok_or("the ServiceAccount is not of a RouterConfig")?;
    Ok((namespace, name))
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
    let (namespace, name) = account(user.username.as_deref().unwrap_or_default())?;
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

    fn token(claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part("{}"), part(claims), part("signature"))
    }

    #[test]
    fn a_token_that_speaks_against_itself_is_asked_about_by_nobody() {
        let router = "system:serviceaccount:dynamo:chat-router";
        for good in [
            format!(r#"{{"aud":["x","{AUDIENCE}"],"sub":"{router}","exp":1}}"#),
            format!(r#"{{"aud":"{AUDIENCE}","sub":"{router}","kubernetes.io":{{"pod":{{}}}}}}"#),
        ] {
            assert_eq!(plausible(&token(&good)), Ok(()), "{good}");
        }
        let good = token(&format!(r#"{{"aud":["{AUDIENCE}"],"sub":"{router}"}}"#));
        for bad in [
            String::new(),
            "opaque".to_owned(),
            "a.b".to_owned(),
            "..".to_owned(),
            "!.!.!".to_owned(),
            format!("{good}.x"),
            good.replace('.', ""),
            token("not json"),
            token("[]"),
            token("{}"),
            token(&format!(r#"{{"aud":["{AUDIENCE}"]}}"#)),
            token(&format!(r#"{{"aud":7,"sub":"{router}"}}"#)),
            token(&format!(
                r#"{{"aud":["https://kubernetes.default.svc"],"sub":"{router}"}}"#
            )),
            token(&format!(
                r#"{{"aud":["{AUDIENCE}"],"sub":"system:serviceaccount:dynamo:default"}}"#
            )),
            token(&format!(r#"{{"aud":["{AUDIENCE}"],"sub":"system:node:n1"}}"#)),
        ] {
            assert!(plausible(&bad).is_err(), "{bad}");
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
