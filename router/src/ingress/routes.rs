//! The closed set of routes, from method and path.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::error::Error;

/// What a request asks for. Each has one metric label; a client's path never becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/moderations`
    Moderations,
    /// `POST /v1/images/generations`
    ImageGenerations,
    /// `POST /v1/audio/speech`
    AudioSpeech,
    /// `POST /v1/rerank`
    Rerank,
    /// `POST /v1/score`
    Score,
    /// `POST /v1/classify`
    Classify,
    /// `POST /v1/pooling`
    Pooling,
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`
    Model,
    /// `GET /health`: the router answers.
    Health,
    /// `GET /live`: the process lives.
    Live,
    /// `GET /ready`: it may be sent traffic.
    Ready,
}

/// How a route is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Pinned to workers of a fleet where one serves the model, else relayed to another backend.
    Pinned,
    /// Relayed to a backend that serves the model; frontends ignore pins on it.
    Relayed,
    /// Answered by this router.
    Local,
}

impl Route {
    /// Every route, in the order of tables and metrics.
    pub const ALL: [Self; 16] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Moderations,
        Self::ImageGenerations,
        Self::AudioSpeech,
        Self::Rerank,
        Self::Score,
        Self::Classify,
        Self::Pooling,
        Self::Models,
        Self::Model,
        Self::Health,
        Self::Live,
        Self::Ready,
    ];

    /// Finds the route of a request.
    ///
    /// `HEAD` is `GET` without a body. The path is compared as sent: no trailing slash, no escapes but in a
    /// model id.
    ///
    /// # Errors
    /// [`Error::UnknownPath`], [`Error::MethodNotAllowed`].
    pub fn find(method: &Method, path: &str) -> Result<Self, Error> {
        let route = Self::of_path(path).ok_or(Error::UnknownPath)?;
        let allow = route.allow();
        let fits = match route.service() {
            Service::Pinned | Service::Relayed => method == Method::POST,
            Service::Local => method == Method::GET || method == Method::HEAD,
        };
        if fits {
            Ok(route)
        } else {
            Err(Error::MethodNotAllowed { allow })
        }
    }

    /// How it is served.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::ChatCompletions | Self::Completions => Service::Pinned,
            Self::Embeddings
            | Self::Responses
            | Self::Moderations
            | Self::ImageGenerations
            | Self::AudioSpeech
            | Self::Rerank
            | Self::Score
            | Self::Classify
            | Self::Pooling => Service::Relayed,
            Self::Models | Self::Model | Self::Health | Self::Live | Self::Ready => Service::Local,
        }
    }

    /// The `allow` header of the path.
    #[must_use]
    pub const fn allow(self) -> &'static str {
        match self.service() {
            Service::Pinned | Service::Relayed => "POST",
            Service::Local => "GET, HEAD",
        }
    }

    /// The value of the metric label `route`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Moderations => "moderations",
            Self::ImageGenerations => "images_generations",
            Self::AudioSpeech => "audio_speech",
            Self::Rerank => "rerank",
            Self::Score => "score",
            Self::Classify => "classify",
            Self::Pooling => "pooling",
            Self::Models => "models",
            Self::Model => "model",
            Self::Health => "health",
            Self::Live => "live",
            Self::Ready => "ready",
        }
    }

    fn of_path(path: &str) -> Option<Self> {
        let Some(api) = path.strip_prefix("/v1/") else {
            return match path {
                "/health" => Some(Self::Health),
                "/live" => Some(Self::Live),
                "/ready" => Some(Self::Ready),
                _ => None,
            };
        };
        match api {
            "chat/completions" => Some(Self::ChatCompletions),
            "completions" => Some(Self::Completions),
            "embeddings" => Some(Self::Embeddings),
            "responses" => Some(Self::Responses),
            "moderations" => Some(Self::Moderations),
            "images/generations" => Some(Self::ImageGenerations),
            "audio/speech" => Some(Self::AudioSpeech),
            "rerank" => Some(Self::Rerank),
            "score" => Some(Self::Score),
            "classify" => Some(Self::Classify),
            "pooling" => Some(Self::Pooling),
            "models" => Some(Self::Models),
            other => {
                let id = other.strip_prefix("models/")?;
                (!id.is_empty()).then_some(Self::Model)
            }
        }
    }
}

/// The model id of a [`Route::Model`] path. Ids hold slashes: clients send them escaped or as they are.
/// `None` when the path is another, or the unescaped id is not UTF-8.
#[must_use]
pub fn model_id(path: &str) -> Option<Cow<'_, str>> {
    let id = path.strip_prefix("/v1/models/").filter(|id| !id.is_empty())?;
    percent_decode_str(id).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_path_has_one_route() {
        let table = [
            ("/v1/chat/completions", Route::ChatCompletions),
            ("/v1/completions", Route::Completions),
            ("/v1/embeddings", Route::Embeddings),
            ("/v1/responses", Route::Responses),
            ("/v1/moderations", Route::Moderations),
            ("/v1/images/generations", Route::ImageGenerations),
            ("/v1/audio/speech", Route::AudioSpeech),
            ("/v1/rerank", Route::Rerank),
            ("/v1/score", Route::Score),
            ("/v1/classify", Route::Classify),
            ("/v1/pooling", Route::Pooling),
            ("/v1/models", Route::Models),
            ("/v1/models/a", Route::Model),
            ("/health", Route::Health),
            ("/live", Route::Live),
            ("/ready", Route::Ready),
        ];
        assert_eq!(table.map(|(_, route)| route), Route::ALL);
        for (path, route) in table {
            let right = if route.service() == Service::Local {
                Method::GET
            } else {
                Method::POST
            };
            assert_eq!(Route::find(&right, path), Ok(route), "{path}");
            for wrong in [
                Method::PUT,
                Method::DELETE,
                Method::OPTIONS,
                Method::PATCH,
                Method::CONNECT,
            ] {
                assert_eq!(
                    Route::find(&wrong, path),
                    Err(Error::MethodNotAllowed { allow: route.allow() }),
                    "{wrong} {path}"
                );
            }
        }
        assert_eq!(Route::find(&Method::HEAD, "/live"), Ok(Route::Live));
        assert!(Route::find(&Method::GET, "/v1/chat/completions").is_err());
        assert!(Route::find(&Method::POST, "/v1/models").is_err());
    }

    #[test]
    fn a_path_is_compared_as_sent() {
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v1/models/",
            "/v1/chat/completions/",
            "//v1/models",
            "/V1/models",
            "/v1/chat%2fcompletions",
            "/v1/chat/../models",
            "/metrics",
            "/admin/status",
            "*",
        ] {
            assert_eq!(
                Route::find(&Method::POST, path),
                Err(Error::UnknownPath),
                "{path}"
            );
        }
    }

    #[test]
    fn model_ids_come_escaped_or_as_they_are() {
        for path in [
            "/v1/models/Qwen/Qwen3-0.6B",
            "/v1/models/Qwen%2FQwen3-0.6B",
            "/v1/models/Qwen%2fQwen3-0.6B",
        ] {
            assert_eq!(model_id(path).as_deref(), Some("Qwen/Qwen3-0.6B"), "{path}");
        }
        assert_eq!(model_id("/v1/models/%EB%AA%A8").as_deref(), Some("모"));
        assert_eq!(model_id("/v1/models/%FF"), None);
        assert_eq!(model_id("/v1/models/"), None);
        assert_eq!(model_id("/v1/models"), None);
    }

    #[test]
    fn labels_are_unique() {
        assert_eq!(
            Route::ALL
                .map(Route::as_str)
                .into_iter()
                .collect::<BTreeSet<_>>()
                .len(),
            Route::ALL.len()
        );
    }
}
