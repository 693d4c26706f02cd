//! Rows are named after the situations; bodies are those of real frontends.

use super::*;

const GENERIC: &str =
    r#"{"message":"Failed to generate completions","type":"Internal Server Error","code":500}"#;
const INVALID: &str = r#"{"message":"Invalid request","type":"Bad Request","code":400}"#;
const UNKNOWN_DECODE: &str = r#"{"message":"nvext.decode_worker_id=12345 does not identify a known worker","type":"Bad Request","code":400}"#;
const UNKNOWN_PREFILL: &str = r#"{"message":"nvext.prefill_worker_id=12345 does not identify a known worker","type":"Bad Request","code":400}"#;
const WORKER_REQUIRED: &str = r#"{"message":"worker ID required for decode request in Direct routing mode","type":"Bad Request","code":400}"#;
const UNAVAILABLE: &str =
    r#"{"message":"Service temporarily unavailable","type":"Service Unavailable","code":503}"#;
const DEADLINE: &str = r#"{"message":"Request deadline exceeded","type":"Gateway Timeout","code":504}"#;
const NOT_READY: &str = r#"{"message":"Model `Qwen/Qwen3-0.6B` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly.","type":"Service Unavailable","code":503}"#;
const NOT_FOUND: &str = r#"{"message":"Model not found","type":"Not Found","code":404}"#;
const MISSING_FIELD: &str = r#"{"message":"Failed to deserialize the JSON body into the target type: missing field `messages` at line 1 column 28","type":"Bad Request","code":400}"#;
const MAX_TOKENS: &str =
    r#"{"message":"Validation: Max tokens must be greater than 0, got 0","type":"Bad Request","code":400}"#;
const OUT_OF_BOUNDS: &str =
    r#"{"message":"dp_rank 7 is out of bounds for dp_size 1","type":"Bad Request","code":400}"#;
const UNKNOWN_NVEXT: &str = r#"{"message":"Failed to deserialize the JSON body into the target type: unknown field `bogus`, expected one of `greed_sampling`","type":"Bad Request","code":400}"#;
const OVERLOADED: &str =
    r#"{"message":"All workers are overloaded","type":"Service Unavailable","code":503}"#;
const QUEUED: &str =
    r#"{"message":"Request exceeded its queue deadline","type":"Service Unavailable","code":503}"#;

/// A pair that is in the view, in a pool of one set.
const LIVE: Facts = Facts {
    sent_prefill: true,
    prefill_pool_came: true,
    pins_live: true,
    sets_in_pool: 1,
    settling: false,
    confirmed: true,
    model_listed: Some(true),
};
/// A pinned worker has left the view.
const GONE: Facts = Facts {
    pins_live: false,
    ..LIVE
};
/// Two sets serve the model in this pool.
const SETS: Facts = Facts {
    sets_in_pool: 2,
    ..LIVE
};
/// Aggregated worker, no prefill pool.
const AGG: Facts = Facts {
    sent_prefill: false,
    prefill_pool_came: false,
    ..LIVE
};
/// No prefill id sent, and a prefill pool has appeared.
const BEHIND: Facts = Facts {
    sent_prefill: false,
    ..LIVE
};

/// Workers have just joined or left.
const SETTLING: Facts = Facts {
    settling: true,
    ..LIVE
};

/// Nobody confirms the view.
const UNCONFIRMED: Facts = Facts {
    confirmed: false,
    ..LIVE
};

#[track_caller]
fn check(rows: &[(&str, u16, &str, Facts, Meaning)]) {
    for (name, status, body, facts, expected) in rows {
        let status = StatusCode::from_u16(*status).unwrap();
        let found = meaning(
            CameBack::Answer {
                status,
                body: body.as_bytes(),
            },
            facts,
        );
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn transport() {
    for facts in [LIVE, GONE, SETS, AGG, BEHIND] {
        assert_eq!(meaning(CameBack::NoAnswer, &facts), Meaning::Replica);
        assert_eq!(meaning(CameBack::HalfAnswer, &facts), Meaning::Failure);
        assert_eq!(meaning(CameBack::Late, &facts), Meaning::Failure);
    }
}

#[test]
fn back_pressure() {
    let too_many = Meaning::BackPressure(StatusCode::TOO_MANY_REQUESTS);
    let unavailable = Meaning::BackPressure(StatusCode::SERVICE_UNAVAILABLE);
    check(&[
        ("529", 529, "", LIVE, too_many),
        ("529 of a departed worker", 529, OVERLOADED, GONE, too_many),
        ("429", 429, "{}", SETS, too_many),
        ("503 overload", 503, OVERLOADED, LIVE, unavailable),
        ("503 queue", 503, QUEUED, GONE, unavailable),
    ]);
}

#[test]
fn topology() {
    let unlisted = Facts {
        model_listed: Some(false),
        ..LIVE
    };
    check(&[
        (
            "last prefill worker gone (n0)",
            503,
            NOT_READY,
            AGG,
            Meaning::ModelNotReady,
        ),
        (
            "with a stale prefill id (n2)",
            503,
            NOT_READY,
            GONE,
            Meaning::ModelNotReady,
        ),
        (
            "frontend has not found the model",
            404,
            NOT_FOUND,
            LIVE,
            Meaning::ModelNotReady,
        ),
        (
            "frontend has turned its routes off (seen on 1.6.1 while the last pair leaves)",
            404,
            "",
            LIVE,
            Meaning::ModelNotReady,
        ),
        (
            "list lacks the model",
            500,
            GENERIC,
            unlisted,
            Meaning::ModelNotReady,
        ),
        (
            "list lacks the model, client error",
            400,
            MAX_TOKENS,
            unlisted,
            Meaning::Client,
        ),
        (
            "list unknown",
            500,
            GENERIC,
            Facts {
                model_listed: None,
                ..LIVE
            },
            Meaning::RePick(Cause::Suspect),
        ),
    ]);
}

#[test]
fn view_behind() {
    let behind = Meaning::RePick(Cause::ViewBehind);
    check(&[
        ("worker id, no prefill id (d2)", 500, GENERIC, BEHIND, behind),
        ("1.6.1", 400, INVALID, BEHIND, behind),
        ("1.4.2", 400, WORKER_REQUIRED, BEHIND, behind),
        (
            "and the worker left",
            500,
            GENERIC,
            Facts {
                pins_live: false,
                ..BEHIND
            },
            behind,
        ),
    ]);
}

#[test]
fn stale_pin() {
    let stale = Meaning::RePick(Cause::Stale);
    check(&[
        ("1.4.2 (d13)", 500, GENERIC, GONE, stale),
        ("1.5.1 (d13)", 400, UNKNOWN_DECODE, GONE, stale),
        ("1.5.1 (d15)", 400, UNKNOWN_PREFILL, GONE, stale),
        ("1.6.1 (d13)", 400, INVALID, GONE, stale),
        ("1.6.1 killed", 503, UNAVAILABLE, GONE, stale),
        ("1.6.1 stopped", 504, DEADLINE, GONE, stale),
        (
            "several sets",
            400,
            INVALID,
            Facts {
                sets_in_pool: 3,
                ..GONE
            },
            stale,
        ),
    ]);
}

#[test]
fn lottery() {
    check(&[
        ("1.4.2 (m1)", 500, GENERIC, SETS, Meaning::Lottery),
        ("1.5.1 (m0)", 400, UNKNOWN_DECODE, SETS, Meaning::Lottery),
        ("1.6.1 (m3)", 400, INVALID, SETS, Meaning::Lottery),
        (
            "a dead worker in the right set",
            503,
            UNAVAILABLE,
            SETS,
            Meaning::RePick(Cause::Suspect),
        ),
        ("the client's own", 400, MAX_TOKENS, SETS, Meaning::Client),
    ]);
}

#[test]
fn dead_but_registered() {
    let suspect = Meaning::RePick(Cause::Suspect);
    check(&[
        ("1.4.2 and 1.5.1 killed", 500, GENERIC, LIVE, suspect),
        ("aggregated", 500, GENERIC, AGG, suspect),
        ("1.6.1 killed", 503, UNAVAILABLE, LIVE, suspect),
        ("1.6.1 stopped", 504, DEADLINE, LIVE, suspect),
        (
            "1.5.1 after expiry, before our view",
            400,
            UNKNOWN_PREFILL,
            LIVE,
            suspect,
        ),
    ]);
}

#[test]
fn the_clients_own() {
    check(&[
        (
            "invalid request, live pin, one set",
            400,
            INVALID,
            LIVE,
            Meaning::Client,
        ),
        ("missing field (d56)", 400, MISSING_FIELD, LIVE, Meaning::Client),
        ("max_tokens (d57)", 400, MAX_TOKENS, LIVE, Meaning::Client),
        (
            "unknown nvext key (d38)",
            400,
            UNKNOWN_NVEXT,
            LIVE,
            Meaning::Client,
        ),
        (
            "rank out of range (d61)",
            400,
            OUT_OF_BOUNDS,
            LIVE,
            Meaning::Client,
        ),
        ("401", 401, "", LIVE, Meaning::Client),
        ("413", 413, "", GONE, Meaning::Client),
        (
            "404 of a route",
            404,
            r#"{"message":"Route not found"}"#,
            LIVE,
            Meaning::Client,
        ),
    ]);
}

#[test]
fn failures() {
    check(&[
        ("500 with another text", 500, "boom", LIVE, Meaning::Failure),
        ("501", 501, "", LIVE, Meaning::Failure),
        ("502", 502, "", LIVE, Meaning::Failure),
        ("3xx is no answer of a frontend", 302, "", LIVE, Meaning::Failure),
    ]);
}

#[test]
fn soon_after_a_change_a_frontend_may_not_know_the_pin_yet() {
    check(&[
        ("1.6.1", 400, INVALID, SETTLING, Meaning::Settling),
        ("1.6.1, long after", 400, INVALID, LIVE, Meaning::Client),
        (
            "1.6.1, several sets",
            400,
            INVALID,
            Facts {
                settling: true,
                ..SETS
            },
            Meaning::Lottery,
        ),
        (
            "1.5.1 tells",
            400,
            UNKNOWN_DECODE,
            SETTLING,
            Meaning::RePick(Cause::Suspect),
        ),
        (
            "a mistake with words",
            400,
            r#"{"message":"max_tokens must be positive"}"#,
            SETTLING,
            Meaning::Client,
        ),
    ]);
}

#[test]
fn while_nobody_confirms_the_view_a_frontend_may_have_lost_the_pin() {
    let suspect = Meaning::RePick(Cause::Suspect);
    check(&[
        ("1.6.1", 400, INVALID, UNCONFIRMED, Meaning::Unconfirmed),
        (
            "1.6.1, aggregated",
            400,
            INVALID,
            Facts {
                confirmed: false,
                ..AGG
            },
            Meaning::Unconfirmed,
        ),
        (
            "1.6.1, and the last change is young",
            400,
            INVALID,
            Facts {
                confirmed: false,
                ..SETTLING
            },
            Meaning::Unconfirmed,
        ),
        (
            "1.6.1, several sets",
            400,
            INVALID,
            Facts {
                confirmed: false,
                ..SETS
            },
            Meaning::Lottery,
        ),
        (
            "1.6.1, the last view had lost it already",
            400,
            INVALID,
            Facts {
                confirmed: false,
                ..GONE
            },
            Meaning::RePick(Cause::Stale),
        ),
        ("1.5.1", 400, UNKNOWN_DECODE, UNCONFIRMED, suspect),
        ("1.4.2", 500, GENERIC, UNCONFIRMED, suspect),
        ("killed", 503, UNAVAILABLE, UNCONFIRMED, suspect),
        (
            "a mistake with words (d57)",
            400,
            MAX_TOKENS,
            UNCONFIRMED,
            Meaning::Client,
        ),
    ]);
}
