//! Who may ask: whoever has the bearer token; without one configured, whoever reaches the listener.
//!
//! Validation lets a listener be without a token on loopback addresses and Unix sockets alone. There, a page in a
//! browser of the same machine could still be made to ask (a foreign name that resolves to 127.0.0.1), so the
//! request must name this machine.

use continuum_config::model::Admin;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE},
};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::proxy::{self, Body};

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No bearer token.
    Missing,
    /// Another one.
    Wrong,
    /// No token is configured, and the request comes through a name, or from a page, of somebody else.
    Foreign,
}

impl Refusal {
    pub(super) fn response(self) -> Response<Body> {
        let (status, code, message) = match self {
            Self::Missing => (
                StatusCode::UNAUTHORIZED,
                "token_missing",
                "send the token of `admin.token` as `authorization: Bearer <token>`",
            ),
            Self::Wrong => (
                StatusCode::UNAUTHORIZED,
                "token_wrong",
                "the bearer token is not the one of `admin.token`",
            ),
            Self::Foreign => (
                StatusCode::FORBIDDEN,
                "foreign_request",
                "without `admin.token` this listener answers only to its IP address or to localhost, and no other site's pages",
            ),
        };
        let body = serde_json::json!({ "error": {
            "message": message, "type": "invalid_request_error", "param": null, "code": code,
        }});
        let mut response = proxy::json(status, body.to_string().into());
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Whether a request may be answered.
///
/// # Errors
/// Why not.
pub(super) fn check(admin: &Admin, headers: &HeaderMap) -> Result<(), Refusal> {
    let expected: [u8; 32] = match (&admin.token, &admin.token_hash) {
        (Some(token), _) => Sha256::digest(token.expose()).into(),
        (None, Some(hash)) => *hash.bytes(),
        (None, None) => {
            return if is_local(headers) {
                Ok(())
            } else {
                Err(Refusal::Foreign)
            };
        }
    };
    let presented = bearer(headers).ok_or(Refusal::Missing)?;
    // Hashes have one length and tell nothing of the token, whatever a comparison takes.
    let presented: [u8; 32] = Sha256::digest(presented).into();
    if bool::from(presented.ct_eq(&expected)) {
        Ok(())
    } else {
        Err(Refusal::Wrong)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

fn is_local(headers: &HeaderMap) -> bool {
    !headers.contains_key(ORIGIN) && headers.get(HOST).is_none_or(names_this_machine)
}

fn names_this_machine(host: &HeaderValue) -> bool {
    let Ok(authority) = host.to_str().unwrap_or_default().parse::<http::uri::Authority>() else {
        // A client of a Unix socket may send an empty host.
        return host.is_empty();
    };
    let name = authority.host();
    let name = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use continuum_config::{Secret, value::TokenHash};
    use http::header::HeaderName;

    use super::*;

    fn asked(headers: &[(HeaderName, &'static str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn the_token_or_its_hash_lets_in() {
        // printf %s 0123456789abcdef | sha256sum
        let hash = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
        let by_token = Admin {
            token: Some(Secret::new("0123456789abcdef")),
            ..Admin::default()
        };
        let by_hash = Admin {
            token_hash: TokenHash::parse(hash),
            ..Admin::default()
        };
        for admin in [by_token, by_hash] {
            let check = |headers: &[_]| check(&admin, &asked(headers));
            assert_eq!(check(&[(AUTHORIZATION, "Bearer 0123456789abcdef")]), Ok(()));
            assert_eq!(check(&[(AUTHORIZATION, "bearer 0123456789abcdef")]), Ok(()));
            assert_eq!(check(&[]), Err(Refusal::Missing));
            assert_eq!(
                check(&[(AUTHORIZATION, "Basic 0123456789abcdef")]),
                Err(Refusal::Missing)
            );
            for wrong in [
                "Bearer ",
                "Bearer 0123456789abcde",
                "Bearer 0123456789abcdeff",
                "Bearer 0123456789ABCDEF",
            ] {
                assert_eq!(check(&[(AUTHORIZATION, wrong)]), Err(Refusal::Wrong), "{wrong}");
            }
        }
    }

    #[test]
    fn without_a_token_only_this_machine_is_answered() {
        let check = |headers: &[_]| check(&Admin::default(), &asked(headers));
        assert_eq!(check(&[]), Ok(()));
        for host in ["127.0.0.1:9090", "localhost:9090", "localhost", "[::1]:9090", ""] {
            assert_eq!(check(&[(HOST, host)]), Ok(()), "{host}");
        }
        for host in ["rebound.example:9090", "localhost.example", "127.0.0.1.example"] {
            assert_eq!(check(&[(HOST, host)]), Err(Refusal::Foreign), "{host}");
        }
        assert_eq!(
            check(&[(HOST, "localhost"), (ORIGIN, "http://example.com")]),
            Err(Refusal::Foreign)
        );
    }
}
