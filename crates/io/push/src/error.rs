//! Why a session ended or an update was not taken.

use std::{io, path::PathBuf};

use continuum_messages::assemble;

/// What went wrong. Holds no secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name service has no answer.
    #[error("the controllers' name cannot be resolved: {0}")]
    Resolve(io::Error),
    /// The certificates to trust cannot be used.
    #[error("{}: {why}", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The token cannot be used.
    #[error("{}: {why}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No connection, or no TLS.
    #[error("cannot connect to the controller: {0}")]
    Connect(String),
    /// Connecting took too long.
    #[error("the controller did not answer in time")]
    Timeout,
    /// The controller does not take the token.
    #[error("the controller refuses this router: {0}")]
    Refused(String),
    /// The session broke.
    #[error("the session with the controller broke: {0}")]
    Broken(String),
    /// The controller ended the session.
    #[error("the controller ended the session")]
    Closed,
    /// Nothing came for too long.
    #[error("the controller fell silent")]
    Silent,
    /// A message that the protocol does not allow here.
    #[error("the controller sent what cannot be used: {0}")]
    Protocol(&'static str),
    /// An update of the view.
    #[error("an update of the view was refused: {0}")]
    View(#[from] assemble::Error),
}

/// The closed set of reasons, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The controllers' name has no address.
    Resolve,
    /// The file of certificates.
    Ca,
    /// The file of the token.
    Token,
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// The token is not taken.
    Refused,
    /// The session broke or was ended.
    Closed,
    /// Nothing came.
    Silent,
    /// A message that cannot be used.
    Protocol,
    /// An update of the view that cannot be used.
    View,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Resolve,
        Self::Ca,
        Self::Token,
        Self::Connect,
        Self::Timeout,
        Self::Refused,
        Self::Closed,
        Self::Silent,
        Self::Protocol,
        Self::View,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Ca => "ca",
            Self::Token => "token",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Protocol => "protocol",
            Self::View => "view",
        }
    }
}

impl Error {
    /// Its reason.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Resolve(_) => Reason::Resolve,
            Self::Ca { .. } => Reason::Ca,
            Self::Token { .. } => Reason::Token,
            Self::Connect(_) => Reason::Connect,
            Self::Timeout => Reason::Timeout,
            Self::Refused(_) => Reason::Refused,
            Self::Broken(_) | Self::Closed => Reason::Closed,
            Self::Silent => Reason::Silent,
            Self::Protocol(_) => Reason::Protocol,
            Self::View(_) => Reason::View,
        }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let text = cut(status.message());
        let code = status.code();
        if matches!(code, tonic::Code::Unauthenticated | tonic::Code::PermissionDenied) {
            Self::Refused(text)
        } else if text.is_empty() {
            Self::Broken(code.description().to_owned())
        } else {
            Self::Broken(text)
        }
    }
}

/// A text of another process, short and without control characters.
pub(crate) fn cut(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > crate::limits::MAX_ERROR_BYTES {
            break;
        }
        out.push(c);
    }
    out
}
