//! What a source is: it lists everything, then tells changes until the pass ends.
//!
//! A source reads. Nothing behind these traits can write to a registry.

use std::future::Future;

use continuum_fleet::{Change, Notes, Refused, ids::Graph};

use crate::error::Error;

/// Where a fleet is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// An etcd cluster.
    Etcd,
    /// A Dynamo file store.
    File,
    /// `DynamoWorkerMetadata` resources joined with EndpointSlices.
    Kubernetes,
    /// Pods with the operator's labels.
    KubernetesPods,
    /// Controllers, which push the view.
    Controller,
}

impl SourceKind {
    /// Every kind, in order.
    pub const ALL: [Self; 5] = [
        Self::Etcd,
        Self::File,
        Self::Kubernetes,
        Self::KubernetesPods,
        Self::Controller,
    ];

    /// The word of the config, metrics and the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::File => "file",
            Self::Kubernetes => "kubernetes",
            Self::KubernetesPods => "kubernetes_pods",
            Self::Controller => "controller",
        }
    }

    /// What its records can tell.
    #[must_use]
    pub const fn signals(self) -> Signals {
        match self {
            Self::Etcd | Self::File | Self::Kubernetes | Self::Controller => Signals {
                load: true,
                capacity: true,
            },
            Self::KubernetesPods => Signals {
                load: false,
                capacity: false,
            },
        }
    }
}

/// Which signals a source carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Event channels, so load can be followed.
    pub load: bool,
    /// Cards, so capacity is known.
    pub capacity: bool,
}

/// Keys and values of records.
pub type Entries = Vec<(String, Vec<u8>)>;

/// The full list that a pass begins with.
#[derive(Debug, Default)]
pub struct Seed {
    /// Key and value of every record that could be read.
    pub entries: Entries,
    /// What could not.
    pub lost: Lost,
    /// What the source found worth saying.
    pub notes: Notes,
    /// What the source keeps out of it now.
    pub refused: Refused,
}

/// What happened since the list or since the last batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// In order.
    pub changes: Vec<Change>,
    /// What could not be read.
    pub lost: Lost,
    /// What the source found worth saying.
    pub notes: Notes,
    /// What the source keeps out now, where it says.
    pub refused: Option<Refused>,
    /// The pass ends after these changes, as planned; the next one lists everything again.
    pub over: Option<Over>,
}

/// An end of a pass that is no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The server ended a watch when it had been asked to.
    Turn,
    /// More has to be listed and watched than before.
    Widen,
    /// Other Dynamo namespaces are wanted.
    Names,
}

/// Records that a source could not hand over. Counted, never fatal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Keys that are no text, records that cannot be read.
    pub malformed: u64,
    /// Records beyond a cap.
    pub over_capacity: u64,
}

/// A place to find a fleet. One value lives for many passes.
pub trait Source: Send {
    /// The changes after a list.
    type Watch: Watch;

    /// What the next pass has to look for. Told to the Kubernetes sources before each one; nothing to do for a source that
    /// reads the records of all Dynamo namespaces anyhow.
    fn look_for(&mut self, _namespaces: &[Graph]) {}

    /// Begins a pass: connects, lists everything, opens the watch without a gap after the list.
    fn open(&mut self) -> impl Future<Output = Result<(Seed, Self::Watch), Error>> + Send;
}

/// The changes of one pass.
pub trait Watch: Send {
    /// Waits for the next changes; an error, or a batch that says so, ends the pass. Cancel-safe: a dropped call loses
    /// nothing.
    fn next(&mut self) -> impl Future<Output = Result<Batch, Error>> + Send;
}
