//! Registry keys: four buckets, each with its grammar, and the prefixes that a source lists and watches.
//!
//! Namespace, component and the other names stand raw in `v1/instances` and `v1/mdc`, and percent-encoded in
//! the two event buckets (everything but ASCII letters, digits, `-` and `_`).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    graphs::NamespaceMatch,
    ids::{Graph, InstanceId, PublisherId},
    limits::{MAX_KEY_BYTES, MAX_NAME_BYTES},
    notes::Malformed,
};

/// Bytes that the event buckets escape.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A key space of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bucket {
    /// `v1/instances`: who serves which endpoint.
    Instances,
    /// `v1/mdc`: model deployment cards.
    Cards,
    /// `v1/event_channels`: where events can be subscribed to.
    EventChannels,
    /// `v1/event_sources`: which publisher speaks for which worker and rank. Old fleets have none, and a reader
    /// may lack the permission; both are fine.
    EventSources,
}

impl Bucket {
    /// Every bucket, in the order in which a source lists them.
    pub const ALL: [Self; 4] = [
        Self::Instances,
        Self::Cards,
        Self::EventChannels,
        Self::EventSources,
    ];

    /// The bucket's path, without a slash at its end; also a folder of Dynamo's file store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instances => "v1/instances",
            Self::Cards => "v1/mdc",
            Self::EventChannels => "v1/event_channels",
            Self::EventSources => "v1/event_sources",
        }
    }

    /// The prefix that holds every key of this bucket which may belong to the graph.
    ///
    /// With [`NamespaceMatch::Exact`] it ends in a slash. Otherwise it is a string prefix that also meets
    /// foreign namespaces (`prod` meets `prod2`); the reducer leaves those out.
    #[must_use]
    pub fn range_prefix(self, graph: &Graph, how: NamespaceMatch) -> String {
        let end = match how {
            NamespaceMatch::Exact => "/",
            NamespaceMatch::Generation | NamespaceMatch::Prefix => "",
        };
        match self {
            Self::Instances | Self::Cards => format!("{}/{}{end}", self.as_str(), graph.as_str()),
            Self::EventChannels | Self::EventSources => {
                format!(
                    "{}/namespace/{}{end}",
                    self.as_str(),
                    utf8_percent_encode(graph.as_str(), ESCAPED)
                )
            }
        }
    }
}

/// A key, taken apart. Names are decoded; ids are numbers, so two spellings of one id are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// An endpoint instance.
    Instance {
        /// Where it is registered.
        at: Place<'a>,
    },
    /// A model card.
    Card {
        /// Where it is registered; component and endpoint may be empty.
        at: Place<'a>,
        /// Slug of an adapter; `None` for the base card.
        suffix: Option<&'a str>,
    },
    /// An event channel.
    Channel {
        /// What it is about.
        on: Subject<'a>,
    },
    /// An event source.
    Source {
        /// What it is about.
        on: Subject<'a>,
    },
}

/// `{namespace}/{component}/{endpoint}/{id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// Component.
    pub component: &'a str,
    /// Endpoint.
    pub endpoint: &'a str,
    /// Instance.
    pub id: InstanceId,
}

/// Scope, topic and publisher of an event key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Namespace of the scope.
    pub namespace: Cow<'a, str>,
    /// Component of the scope, if it has one.
    pub component: Option<Cow<'a, str>>,
    /// Endpoint of the scope, if it has one.
    pub endpoint: Option<Cow<'a, str>>,
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Publisher.
    pub id: PublisherId,
}

impl<'a> Key<'a> {
    /// Takes a full key apart, bucket included.
    ///
    /// # Errors
    /// [`Malformed::KeyTooLong`], or [`Malformed::Key`] when it is not of the grammar of a known bucket.
    pub fn parse(key: &'a str) -> Result<Self, Malformed> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Malformed::KeyTooLong);
        }
        if key.contains(char::is_control) {
            return Err(Malformed::Key);
        }
        let rest = |bucket: Bucket| key.strip_prefix(bucket.as_str())?.strip_prefix('/');
        let parsed = if let Some(rest) = rest(Bucket::Instances) {
            place(rest)
                .filter(|(at, suffix)| {
                    suffix.is_none() && !at.component.is_empty() && !at.endpoint.is_empty()
                })
                .map(|(at, _)| Self::Instance { at })
        } else if let Some(rest) = rest(Bucket::Cards) {
            place(rest).map(|(at, suffix)| Self::Card { at, suffix })
        } else if let Some(rest) = rest(Bucket::EventChannels) {
            subject(rest)
                .or_else(|| legacy_subject(rest))
                .map(|on| Self::Channel { on })
        } else if let Some(rest) = rest(Bucket::EventSources) {
            subject(rest).map(|on| Self::Source { on })
        } else {
            None
        };
        parsed.ok_or(Malformed::Key)
    }

    /// The namespace that the key belongs to; the only authority on it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Instance { at } | Self::Card { at, .. } => at.namespace,
            Self::Channel { on } | Self::Source { on } => &on.namespace,
        }
    }

    /// The bucket.
    #[must_use]
    pub const fn bucket(&self) -> Bucket {
        match self {
            Self::Instance { .. } => Bucket::Instances,
            Self::Card { .. } => Bucket::Cards,
            Self::Channel { .. } => Bucket::EventChannels,
            Self::Source { .. } => Bucket::EventSources,
        }
    }
}

fn place(rest: &str) -> Option<(Place<'_>, Option<&str>)> {
    let mut segments = rest.split('/');
    let (namespace, component, endpoint) = (segments.next()?, segments.next()?, segments.next()?);
    let id = InstanceId::parse_hex(segments.next()?).ok()?;
    let suffix = segments.next();
    let sound = segments.next().is_none()
        && !namespace.is_empty()
        && suffix != Some("")
        && [namespace, component, endpoint]
            .iter()
            .all(|name| name.len() <= MAX_NAME_BYTES);
    sound.then_some((
        Place {
            namespace,
            component,
            endpoint,
            id,
        },
        suffix,
    ))
}

fn subject(rest: &str) -> Option<Subject<'_>> {
    let segments: Vec<&str> = rest.split('/').take(10).collect();
    let (namespace, component, endpoint, topic, id) = match *segments.as_slice() {
        ["namespace", n, "topic", t, id] => (n, None, None, t, id),
        ["namespace", n, "component", c, "topic", t, id] => (n, Some(c), None, t, id),
        ["namespace", n, "component", c, "endpoint", e, "topic", t, id] => (n, Some(c), Some(e), t, id),
        _ => return None,
    };
    Some(Subject {
        namespace: decode(namespace)?,
        component: optional(component)?,
        endpoint: optional(endpoint)?,
        topic: decode(topic)?,
        id: PublisherId::parse_hex(id).ok()?,
    })
}

/// `{namespace}/{component}/{topic}/{id}` of writers before scopes existed; an empty component means the namespace.
fn legacy_subject(rest: &str) -> Option<Subject<'_>> {
    let mut segments = rest.split('/');
    let (namespace, component, topic) = (segments.next()?, segments.next()?, segments.next()?);
    let id = PublisherId::parse_hex(segments.next()?).ok()?;
    if segments.next().is_some() {
        return None;
    }
    Some(Subject {
        namespace: decode(namespace)?,
        component: if component.is_empty() {
            None
        } else {
            Some(decode(component)?)
        },
        endpoint: None,
        topic: decode(topic)?,
        id,
    })
}

/// A name that may be absent, but not unreadable.
fn optional(segment: Option<&str>) -> Option<Option<Cow<'_, str>>> {
    segment.map_or(Some(None), |segment| decode(segment).map(Some))
}

/// One escaped name: not empty, UTF-8, within its cap, without control characters.
fn decode(segment: &str) -> Option<Cow<'_, str>> {
    let name = percent_decode_str(segment).decode_utf8().ok()?;
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control)).then_some(name)
}

#[cfg(test)]
mod tests;
