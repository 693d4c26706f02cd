use serde_json::Value;

use super::*;
use crate::{error::Deadline, ingress::body::Reason};

fn every_error() -> Vec<Error> {
    let model = || "org/m \"x\"".into();
    vec![
        Error::InvalidBody(crate::ingress::body::Error {
            reason: Reason::Truncated,
            at: 7,
        }),
        Error::InvalidBody(crate::ingress::body::Error {
            reason: Reason::ModelMissing,
            at: 0,
        }),
        Error::BodyTooLarge { limit: 1024 },
        Error::BodyIncomplete,
        Error::UnsupportedMediaType,
        Error::UnsupportedEncoding,
        Error::UnknownPath,
        Error::MethodNotAllowed { allow: "POST" },
        Error::ModelNotFound { model: model() },
        Error::ModelNotReady { model: model() },
        Error::NoCandidate { model: model() },
        Error::PrefillDecodeUnavailable,
        Error::DecodeFailed { first: None },
        Error::DecodeFailed {
            first: Some(StatusCode::INTERNAL_SERVER_ERROR),
        },
        Error::DecodeFailed {
            first: Some(StatusCode::OK),
        },
        Error::BackendFailed { first: None },
        Error::BackendFailed {
            first: Some(StatusCode::GATEWAY_TIMEOUT),
        },
        Error::BackPressure(BackPressure::TooMany),
        Error::BackPressure(BackPressure::Overloaded),
        Error::TimedOut(Deadline::Header),
        Error::TimedOut(Deadline::FirstToken),
        Error::TimedOut(Deadline::Idle),
        Error::TimedOut(Deadline::Request),
        Error::TimedOut(Deadline::Body),
        Error::StreamBroken,
        Error::Overloaded,
        Error::BodiesFull,
        Error::ClientClosed,
        Error::Internal("a reason for the log"),
    ]
}

/// Status, type, code, param, retry-after, phase.
type Row = (
    u16,
    &'static str,
    &'static str,
    Option<&'static str>,
    Option<u64>,
    Option<Phase>,
);

#[test]
fn every_failure_has_its_row() {
    const INVALID: &str = "invalid_request_error";
    const SERVER: &str = "server_error";
    let orchestration = Some(Phase::Orchestration);
    let decode = Some(Phase::Decode);
    let rows: Vec<Row> = vec![
        (400, INVALID, "invalid_body", None, None, None),
        (400, INVALID, "invalid_body", Some("model"), None, None),
        (413, INVALID, "body_too_large", None, None, None),
        (400, INVALID, "body_incomplete", None, None, None),
        (415, INVALID, "unsupported_media_type", None, None, None),
        (415, INVALID, "unsupported_encoding", None, None, None),
        (404, INVALID, "unknown_path", None, None, None),
        (405, INVALID, "method_not_allowed", None, None, None),
        (404, INVALID, "model_not_found", Some("model"), None, None),
        (503, SERVER, "model_not_ready", None, Some(5), orchestration),
        (503, SERVER, "no_candidate", None, Some(5), orchestration),
        (
            503,
            SERVER,
            "disaggregated_prefill_decode_unavailable",
            None,
            Some(5),
            orchestration,
        ),
        (502, SERVER, "disaggregated_decode_failed", None, None, decode),
        (500, SERVER, "disaggregated_decode_failed", None, None, decode),
        (502, SERVER, "disaggregated_decode_failed", None, None, decode),
        (502, SERVER, "backend_failed", None, None, None),
        (504, SERVER, "backend_failed", None, None, None),
        (
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
            None,
            Some(1),
            None,
        ),
        (503, SERVER, "overloaded", None, Some(1), None),
        (504, SERVER, "timeout", None, None, decode),
        (504, SERVER, "timeout", None, None, decode),
        (504, SERVER, "timeout", None, None, decode),
        (504, SERVER, "timeout", None, None, decode),
        (408, INVALID, "timeout", None, None, None),
        (502, SERVER, "stream_broken", None, None, decode),
        (503, SERVER, "overloaded", None, Some(1), None),
        (503, SERVER, "overloaded", None, Some(1), None),
        (499, INVALID, "client_closed_request", None, None, None),
        (500, SERVER, "internal_error", None, None, None),
    ];
    let errors = every_error();
    assert_eq!(errors.len(), rows.len());
    for (error, row) in errors.iter().zip(rows) {
        let answer = error.answer();
        let found: Row = (
            answer.status.as_u16(),
            answer.kind.as_str(),
            answer.code.as_str(),
            answer.param,
            answer.retry_after,
            answer.phase,
        );
        assert_eq!(found, row, "{error:?}");
    }
}

#[test]
fn an_answer_is_the_object_that_openai_clients_read() {
    for error in every_error() {
        let response = error.response();
        let answer = error.answer();
        assert_eq!(response.status(), answer.status);
        assert_eq!(response.headers()["content-type"], "application/json");
        let retry = response
            .headers()
            .get("retry-after")
            .map(|v| v.to_str().unwrap().parse::<u64>().unwrap());
        assert_eq!(retry, answer.retry_after, "{error:?}");
        let body: Value = serde_json::from_slice(response.body()).expect("JSON");
        let object = body["error"].as_object().expect("an error object");
        let keys: Vec<_> = object.keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        assert_eq!(object["message"].as_str(), Some(error.to_string().as_str()));
        assert!(
            !object["message"].as_str().unwrap().contains("for the log"),
            "a reason for the log stays there"
        );
        assert_eq!(object["param"].as_str(), answer.param);
    }
    let refused = Error::MethodNotAllowed { allow: "GET, HEAD" }.response();
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}

#[test]
fn a_stream_ends_with_one_error_event_and_the_end_mark() {
    for error in every_error() {
        let end = error.stream_end();
        let text = std::str::from_utf8(&end).expect("UTF-8");
        let event = text
            .strip_prefix("data: ")
            .and_then(|t| t.strip_suffix("\n\ndata: [DONE]\n\n"))
            .expect("two events");
        assert!(!event.contains('\n'));
        let body: Value = serde_json::from_str(event).expect("JSON");
        assert_eq!(body["error"]["code"].as_str(), Some(error.answer().code.as_str()));
    }
}
