//! How the sessions fare, for operators.

use jiff::Timestamp;

/// How the sessions fare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// An operator started this router.
    pub configured: bool,
    /// One for each known address of a controller, in the order of addresses.
    pub sessions: Vec<Session>,
    /// Since when no controller has been reached; `None` while one is.
    pub unreachable_since: Option<Timestamp>,
    /// Why the last session ended or could not begin; `None` while one is up. Holds no secret.
    pub last_error: Option<String>,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The controller's name; empty until it said it.
    pub replica: String,
    /// What it is doing.
    pub state: SessionState,
    /// The controller leads.
    pub leader: bool,
    /// Views and configuration come from here.
    pub followed: bool,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionState {
    /// It connects, or waits before it connects again.
    Connecting,
    /// It is up and the controller speaks.
    Up,
    /// It is up and the controller has been silent for longer than it should.
    Silent,
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Connecting, Self::Up, Self::Silent];

    /// The word for metrics and operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Silent => "silent",
        }
    }
}
