//! What a refusal of a pinned dispatch means: the whole table, as one pure function.
//!
//! A frontend in direct mode answers the same status and text for several causes, so the meaning comes
//! from three things together: what came back, what was sent, and what the fleet view says *now*. The
//! first row that matches wins. Nothing here reads a socket, a clock or the view.
//!
//! Texts are those of Dynamo 1.4.2, 1.5.1 and 1.6.1. Where a version does not tell two causes apart
//! (`Invalid request` of 1.6.1, the generic 500 of all), the view decides.

use http::StatusCode;

use super::limits::TOO_MANY_REQUESTS_OVERLOADED;

/// What came back from one attempt that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameBack<'a> {
    /// Refused, reset or closed without one byte of an answer.
    NoAnswer,
    /// The connection ended inside the answer's head.
    HalfAnswer,
    /// No answer within the deadline.
    Late,
    /// A whole head with a status that is no success, and the beginning of its body.
    Answer {
        /// Status of the answer.
        status: StatusCode,
        /// At most [`super::limits::REFUSAL_BODY`] bytes.
        body: &'a [u8],
    },
}

/// What the fleet looks like at the moment of the refusal, and what had been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The dispatch named a prefill worker.
    pub sent_prefill: bool,
    /// The pool of the pinned workers has prefill workers now, and had none when they were picked.
    pub prefill_pool_came: bool,
    /// Every pinned worker is still in the view.
    pub pins_live: bool,
    /// Worker sets that serve the model in this pool (a frontend draws one of them for each request).
    pub sets_in_pool: u32,
    /// Workers have joined or left the graph within [`super::limits::SETTLING`].
    pub settling: bool,
    /// Discovery stands behind the view: it is not merely the last one known.
    pub confirmed: bool,
    /// The replica's own list holds the model; `None` until it has been read once.
    pub model_listed: Option<bool>,
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This replica is not there: the same pin elsewhere.
    Replica,
    /// The frontend or its workers are full: to the client, with this status.
    BackPressure(StatusCode),
    /// The graph cannot serve the model at the moment.
    ModelNotReady,
    /// Other workers have to be picked.
    RePick(Cause),
    /// The frontend looked the pin up in the wrong worker set: the same pin again.
    Lottery,
    /// The frontend may know other workers than the view does, so soon after a change: the same pin again, after a
    /// pause; in the end it is the client's own mistake.
    Settling,
    /// The frontend may have lost a pinned worker that the view, which nobody confirms, still holds: other workers have
    /// to be picked; if they are refused alike, it is the client's own mistake.
    Unconfirmed,
    /// The client's own mistake: the answer goes out as it is.
    Client,
    /// Something else broke: the fallback rules.
    Failure,
}

/// Why other workers have to be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No prefill worker had been picked and there is a prefill pool now.
    ViewBehind,
    /// A pinned worker left the view between the pick and the answer.
    Stale,
    /// A pinned worker is dead and still registered.
    Suspect,
}

/// Decides what a refusal means. First row that matches wins.
#[must_use]
pub fn meaning(came_back: CameBack<'_>, facts: &Facts) -> Meaning {
    let (status, body) = match came_back {
        CameBack::NoAnswer => return Meaning::Replica,
        CameBack::HalfAnswer | CameBack::Late => return Meaning::Failure,
        CameBack::Answer { status, body } => (status.as_u16(), body),
    };
    let text = Text::of(body);

    // A full fleet.
    match (status, text) {
        (TOO_MANY_REQUESTS_OVERLOADED | 429, _) => {
            return Meaning::BackPressure(StatusCode::TOO_MANY_REQUESTS);
        }
        (503, Text::Overload) => return Meaning::BackPressure(StatusCode::SERVICE_UNAVAILABLE),
        _ => {}
    }
    // A graph without one of its parts, or a frontend that has not found its workers yet. A pin proves that
    // the view knows the model, so a frontend's "not found" speaks of the frontend and not of the client.
    let unlisted = facts.model_listed == Some(false) && (status == 404 || status >= 500);
    // A frontend whose last servable model has gone also turns the route itself off: a 404 without a body.
    let absent = matches!(
        (status, text),
        (503, Text::NotReady) | (404, Text::ModelNotFound | Text::Nothing)
    );
    if unlisted || absent {
        return Meaning::ModelNotReady;
    }
    if matches!(status, 400 | 500) && !facts.sent_prefill && facts.prefill_pool_came {
        return Meaning::RePick(Cause::ViewBehind);
    }
    if matches!(status, 400 | 500 | 503 | 504) && !facts.pins_live {
        return Meaning::RePick(Cause::Stale);
    }
    let set_missed = matches!(
        (status, text),
        (400, Text::InvalidRequest | Text::UnknownWorker) | (500, Text::Generic)
    );
    if set_missed && facts.sets_in_pool > 1 {
        return Meaning::Lottery;
    }
    // What a frontend that has dropped the worker says while the view is not told of it; the text is again the one for a
    // client's mistake. Before the next row: a pin that is dead stays so, however often it is sent.
    if !facts.confirmed && (status, text) == (400, Text::InvalidRequest) {
        return Meaning::Unconfirmed;
    }
    // Each frontend finds and loses workers at its own pace; the text is the one for a client's mistake.
    if facts.settling && (status, text) == (400, Text::InvalidRequest) {
        return Meaning::Settling;
    }
    // With several sets a 503 or 504 still names a dead worker: losing the draw is always a 400 or a 500.
    if matches!(
        (status, text),
        (500, Text::Generic) | (400, Text::UnknownWorker) | (503 | 504, _)
    ) {
        return Meaning::RePick(Cause::Suspect);
    }
    if (400..500).contains(&status) {
        Meaning::Client
    } else {
        Meaning::Failure
    }
}

/// The sentences that carry a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Generic,
    InvalidRequest,
    UnknownWorker,
    NotReady,
    ModelNotFound,
    Overload,
    Nothing,
    Other,
}

impl Text {
    /// Reads the body as text, not as JSON: a prefix may be cut anywhere, and 1.x frontends differ in shape.
    fn of(body: &[u8]) -> Self {
        let has = |needle: &str| contains_ignoring_case(body, needle.as_bytes());
        if body.is_empty() {
            Self::Nothing
        } else if has("not ready to serve") || has("not ready") {
            Self::NotReady
        } else if has("overload") || has("queue") || has("too many requests") || has("workers are busy") {
            Self::Overload
        } else if has("does not identify a known worker") {
            Self::UnknownWorker
        } else if has("\"invalid request\"") {
            Self::InvalidRequest
        } else if has("failed to generate completions") || has("internal server error") {
            Self::Generic
        } else if has("model not found") {
            Self::ModelNotFound
        } else {
            Self::Other
        }
    }
}

fn contains_ignoring_case(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests;
