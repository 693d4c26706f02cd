//! The body of any answer to a client.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::guard::Ending;
use crate::{dispatch::relay::Relay, error::Error, ingress::answer::Rename};

/// Bytes that are here already, or a backend's answer on its way.
pub struct Body(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Relay(Box<Relay<Ending>>),
    Renamed(Box<Relay<Ending>>, Option<Rename>),
}

impl Body {
    /// A body that is here already.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    pub(super) fn relay(relay: Relay<Ending>, rename: Option<Rename>) -> Self {
        let relay = Box::new(relay);
        Self(match rename {
            None => Kind::Relay(relay),
            Some(rename) => Kind::Renamed(relay, Some(rename)),
        })
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Relay(relay) => Pin::new(relay.as_mut()).poll_frame(cx),
            Kind::Renamed(relay, rename) => loop {
                let frame = std::task::ready!(Pin::new(relay.as_mut()).poll_frame(cx));
                return Poll::Ready(match frame {
                    Some(Ok(frame)) => match (frame.into_data(), rename.as_mut()) {
                        (Ok(chunk), Some(renaming)) => {
                            let ready = renaming.push(chunk);
                            if ready.is_empty() {
                                continue;
                            }
                            Some(Ok(Frame::data(ready)))
                        }
                        (Ok(chunk), None) => Some(Ok(Frame::data(chunk))),
                        (Err(trailers), _) => Some(Ok(trailers)),
                    },
                    None => rename
                        .take()
                        .map(|mut renaming| renaming.finish())
                        .filter(|rest| !rest.is_empty())
                        .map(|rest| Ok(Frame::data(rest))),
                    error => error,
                });
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Relay(relay) => relay.is_end_stream(),
            Kind::Renamed(relay, rename) => relay.is_end_stream() && rename.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Relay(relay) => relay.size_hint(),
            Kind::Renamed(..) => SizeHint::default(),
        }
    }
}
