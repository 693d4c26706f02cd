//! What can be asked on the operators' listeners.

use http::Method;

use super::{Audience, reads};
use crate::error::Error;

/// One thing that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Health,
    Live,
    Ready,
    Metrics,
    Status,
    Config,
    Reload,
    #[cfg(feature = "dynamo")]
    Workers,
    #[cfg(feature = "dynamo")]
    Explain,
}

impl Endpoint {
    /// What a request asks.
    ///
    /// # Errors
    /// No such path for this audience, or not with this method.
    pub(super) fn find(method: &Method, path: &str, audience: Audience) -> Result<Self, Error> {
        let endpoint = match path {
            "/health" => Self::Health,
            "/live" | "/livez" => Self::Live,
            "/ready" | "/readyz" => Self::Ready,
            "/metrics" => Self::Metrics,
            _ if audience == Audience::Scrapers => return Err(Error::UnknownPath),
            "/admin/status" => Self::Status,
            "/admin/config" => Self::Config,
            "/admin/config/reload" => Self::Reload,
            #[cfg(feature = "dynamo")]
            "/admin/dynamo/workers" => Self::Workers,
            #[cfg(feature = "dynamo")]
            "/admin/dynamo/explain" => Self::Explain,
            _ => return Err(Error::UnknownPath),
        };
        if endpoint.takes(method) {
            Ok(endpoint)
        } else {
            Err(Error::MethodNotAllowed {
                allow: endpoint.allow(),
            })
        }
    }

    /// Probes tell one bit and need no token.
    pub(super) const fn is_probe(self) -> bool {
        matches!(self, Self::Health | Self::Live | Self::Ready)
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Reload => *method == Method::POST,
            #[cfg(feature = "dynamo")]
            Self::Explain => reads(method) || *method == Method::POST,
            #[cfg(feature = "dynamo")]
            Self::Workers => reads(method),
            Self::Health | Self::Live | Self::Ready | Self::Metrics | Self::Status | Self::Config => {
                reads(method)
            }
        }
    }

    const fn allow(self) -> &'static str {
        match self {
            Self::Reload => "POST",
            #[cfg(feature = "dynamo")]
            Self::Explain => "GET, HEAD, POST",
            #[cfg(feature = "dynamo")]
            Self::Workers => "GET, HEAD",
            Self::Health | Self::Live | Self::Ready | Self::Metrics | Self::Status | Self::Config => {
                "GET, HEAD"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapers_see_metrics_and_probes_alone() {
        for path in ["/metrics", "/health", "/live", "/livez", "/ready", "/readyz"] {
            for audience in [Audience::Operators, Audience::Scrapers] {
                assert!(Endpoint::find(&Method::GET, path, audience).is_ok(), "{path}");
            }
        }
        for path in ["/admin/status", "/admin/config", "/admin/dynamo/workers"] {
            let found = Endpoint::find(&Method::GET, path, Audience::Scrapers);
            assert_eq!(found, Err(Error::UnknownPath), "{path}");
        }
    }

    #[test]
    fn paths_are_compared_as_sent_and_methods_are_named() {
        let find = |method, path| Endpoint::find(&method, path, Audience::Operators);
        assert_eq!(find(Method::HEAD, "/admin/status"), Ok(Endpoint::Status));
        assert_eq!(find(Method::POST, "/admin/config/reload"), Ok(Endpoint::Reload));
        let allow = |allow| Err(Error::MethodNotAllowed { allow });
        assert_eq!(find(Method::GET, "/admin/config/reload"), allow("POST"));
        assert_eq!(find(Method::DELETE, "/admin/status"), allow("GET, HEAD"));
        for path in [
            "/",
            "/admin",
            "/admin/status/",
            "//admin/status",
            "/admin/../metrics",
        ] {
            assert_eq!(find(Method::GET, path), Err(Error::UnknownPath), "{path}");
        }
        #[cfg(not(feature = "dynamo"))]
        assert_eq!(
            find(Method::GET, "/admin/dynamo/workers"),
            Err(Error::UnknownPath)
        );
    }
}
