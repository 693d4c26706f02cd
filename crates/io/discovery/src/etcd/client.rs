//! An etcd client that can read and nothing else.
//!
//! `etcd_client::Client` can write, so it stays private to this file: the only calls that leave it are range get,
//! watch, and the authentication that a connection needs.

use etcd_client::{
    Client, ConnectOptions, GetOptions, KvClient, TlsOptions, WatchClient, WatchOptions, WatchStream,
};

use super::Auth;
use crate::{
    error::{Error, peer_text},
    limits::{CONTACT_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_MESSAGE_BYTES},
};

/// One member of a cluster, connected.
pub(super) struct Member {
    kv: KvClient,
    watch: WatchClient,
}

/// One page of a range.
pub(super) struct Page {
    /// Keys and values in key order.
    pub(super) entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether more keys follow.
    pub(super) more: bool,
    /// The store's revision.
    pub(super) revision: i64,
}

/// What to read.
pub(super) struct Read<'a> {
    /// First key.
    pub(super) from: &'a [u8],
    /// First key after the range.
    pub(super) end: &'a [u8],
    /// Most keys to return.
    pub(super) limit: i64,
    /// The revision to read at; the newest when `None`.
    pub(super) revision: Option<i64>,
    /// Without values.
    pub(super) keys_only: bool,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The user may not read this range.
    #[error("permission denied")]
    Denied,
    /// The answer is larger than we read.
    #[error("the answer is larger than {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    /// The member cannot be reached or does not answer; another one may.
    #[error("{0}")]
    Away(String),
    /// Ends the pass; another member would say the same.
    #[error(transparent)]
    Fatal(Error),
}

impl Member {
    /// Connects, authenticates, and reads one key to be sure that the member answers and has a leader.
    pub(super) async fn contact(
        endpoint: &str,
        tls: Option<TlsOptions>,
        auth: Option<&Auth>,
        probe: &str,
    ) -> Result<Self, ReadError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONTACT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            // A server counts pings without a stream as abuse; the watch is a stream.
            .with_keep_alive_while_idle(false)
            .with_tcp_keepalive(KEEP_ALIVE_INTERVAL)
            // A member without a leader would answer late or never.
            .with_require_leader(true);
        if let Some(auth) = auth {
            // No refresh of the token: its end ends the pass, and the next one authenticates.
            options = options.with_user(&auth.username, &auth.password);
        }
        if let Some(tls) = tls {
            options = options.with_tls(tls);
        }
        let client = Client::connect([endpoint], Some(options))
            .await
            .map_err(read_error)?;
        let mut member = Self {
            kv: client.kv_client().max_decoding_message_size(MAX_MESSAGE_BYTES),
            watch: client.watch_client().max_decoding_message_size(MAX_MESSAGE_BYTES),
        };
        let key = probe.as_bytes();
        match member
            .read(Read {
                from: key,
                end: &prefix_end(key),
                limit: 1,
                revision: None,
                keys_only: true,
            })
            .await
        {
            Ok(_) | Err(ReadError::Denied) => Ok(member),
            Err(error) => Err(error),
        }
    }

    /// Range get.
    pub(super) async fn read(&mut self, read: Read<'_>) -> Result<Page, ReadError> {
        let mut options = GetOptions::new().with_range(read.end).with_limit(read.limit);
        if let Some(revision) = read.revision {
            options = options.with_revision(revision);
        }
        if read.keys_only {
            options = options.with_keys_only();
        }
        let mut answer = self.kv.get(read.from, Some(options)).await.map_err(read_error)?;
        let revision = answer
            .header()
            .map(etcd_client::ResponseHeader::revision)
            .unwrap_or_default();
        let more = answer.more();
        let entries = answer
            .take_kvs()
            .into_iter()
            .map(etcd_client::KeyValue::into_key_value)
            .collect();
        Ok(Page {
            entries,
            more,
            revision,
        })
    }

    /// Opens a watch stream with its first watch.
    pub(super) async fn watch(&self, prefix: &str, revision: i64) -> Result<WatchStream, ReadError> {
        self.watch
            .clone()
            .watch(prefix, Some(watch_options(revision)))
            .await
            .map_err(read_error)
    }
}

/// Options of a watch on a prefix.
pub(super) fn watch_options(revision: i64) -> WatchOptions {
    WatchOptions::new()
        .with_prefix()
        .with_start_revision(revision)
        .with_progress_notify()
        .with_fragment()
}

/// The first key after all keys that begin with `prefix`.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    // Nothing or only 0xff: the range has no end, which etcd spells as a zero byte.
    vec![0]
}

/// gRPC status codes that mean something here.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// What an error of the client means for a pass.
pub(super) fn read_error(error: etcd_client::Error) -> ReadError {
    match error {
        etcd_client::Error::GRpcStatus(status) => {
            let message = status.message();
            match i32::from(status.code()) {
                code::PERMISSION_DENIED => ReadError::Denied,
                code::OUT_OF_RANGE if message.contains("compacted") => ReadError::Fatal(Error::Compacted),
                code::OUT_OF_RANGE if message.contains("message length too large") => ReadError::TooLarge,
                code::UNAUTHENTICATED => ReadError::Fatal(Error::Unauthenticated {
                    why: peer_text(message),
                }),
                // "authentication failed, invalid user ID or password", "user name is empty",
                // "authentication is not enabled".
                code::INVALID_ARGUMENT | code::FAILED_PRECONDITION
                    if message.contains("authenti") || message.contains("user name") =>
                {
                    ReadError::Fatal(Error::Unauthenticated {
                        why: peer_text(message),
                    })
                }
                _ if message.contains("no leader") => ReadError::Away("it has no leader".into()),
                _ => ReadError::Away(with_cause(message, std::error::Error::source(&status))),
            }
        }
        etcd_client::Error::TransportError(error) => {
            ReadError::Away(with_cause(&error.to_string(), std::error::Error::source(&error)))
        }
        other @ (etcd_client::Error::InvalidArgs(_)
        | etcd_client::Error::InvalidUri(_)
        | etcd_client::Error::IoError(_)
        | etcd_client::Error::WatchError(_)
        | etcd_client::Error::Utf8Error(_)
        | etcd_client::Error::LeaseKeepAliveError(_)
        | etcd_client::Error::ElectError(_)
        | etcd_client::Error::InvalidMetadataValue(_)
        | etcd_client::Error::EndpointError(_)
        | etcd_client::Error::EndpointsNotManaged
        | etcd_client::Error::Internal(_)) => ReadError::Away(peer_text(&other.to_string())),
    }
}

/// A text and its innermost cause: "transport error" alone tells nobody that a certificate has expired.
fn with_cause(text: &str, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    let mut innermost = None;
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    match innermost {
        Some(cause) if !text.contains(&cause) => peer_text(&format!("{text}: {cause}")),
        Some(_) | None => peer_text(text),
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Fatal(error) => error,
            ReadError::Away(why) if why.contains("no leader") => Self::LostLeader,
            ReadError::Away(why) => Self::Closed { why },
            ReadError::Denied => Self::Server {
                why: "permission denied".into(),
            },
            ReadError::TooLarge => Self::Server {
                why: error.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn the_end_of_a_prefix_is_the_next_key() {
        assert_eq!(prefix_end(b"v1/a"), b"v1/b");
        assert_eq!(prefix_end(b"v1/\xff"), b"v10");
        assert_eq!(prefix_end(b"\xff\xff"), [0]);
        assert_eq!(prefix_end(b""), [0]);
    }
}
