//! What the facts say of single routers and of the fleet.

use std::collections::BTreeMap;

use continuum_crds::conditions::Reason;
use continuum_fleet::{EventKind, Refused};
use continuum_messages::push;

use super::Finding;
use crate::status::{
    facts::{Facts, Fleet, Router},
    limits::VIEW_MAX_AGE,
};

impl Facts {
    pub(super) fn reports(&self) -> impl Iterator<Item = &push::Report> {
        self.routers.iter().filter_map(|router| router.report.as_ref())
    }

    /// Why this router is not up to date; `None`: it is.
    pub(super) fn lacks(&self, router: &Router) -> Option<Finding> {
        let pod = &router.pod;
        let Some(report) = &router.report else {
            return Some((
                Reason::ConfigPending,
                format!("router {pod} has not reported yet"),
            ));
        };
        let current = router.config.is_some() && router.config == self.config;
        if !current {
            let refused = report.refused.as_ref().filter(|refused| {
                let id = refused.config.as_ref();
                self.config.is_some_and(|config| {
                    id.is_some_and(|id| {
                        id.generation == config.generation && id.digest[..] == config.digest.as_bytes()[..]
                    })
                })
            });
            return Some(match refused {
                Some(refused) => (
                    Reason::ConfigRefused,
                    format!("router {pod} cannot take over the config: {}", refused.error),
                ),
                None => (
                    Reason::ConfigPending,
                    format!("router {pod} has not acknowledged the current config"),
                ),
            });
        }
        if !self.view_is_current(router) {
            return Some((
                Reason::ViewPending,
                format!("router {pod} has no current view of the fleet"),
            ));
        }
        (!report.ready).then(|| {
            (
                Reason::RouterNotReady,
                format!("router {pod} says that it is not ready"),
            )
        })
    }

    /// Why clients of this router get no model that they could ask for; `None`: there is one, or it has not said.
    pub(super) fn offers_nothing(&self, router: &Router) -> Option<String> {
        self.config?;
        if self.pools.is_empty() && !self.ordinary {
            let message =
                "no backend and no shim pool is configured, so there is nobody to send a request to";
            return Some(message.to_owned());
        }
        let report = router.report.as_ref()?;
        let of_fleet = report.served_models == Some(0);
        // Those who wait for a fleet wait for the fleet's models.
        let nothing = of_fleet && (!self.pools.is_empty() || report.backend_models == Some(0));
        nothing.then(|| {
            let why = if self.pools.is_empty() {
                ": no backend is healthy and lists one"
            } else {
                ""
            };
            format!(
                "router {} has no model that clients could ask for{why}",
                router.pod
            )
        })
    }

    pub(super) fn view_is_current(&self, router: &Router) -> bool {
        match &self.fleet {
            Fleet::Pushed { view, source, .. } => {
                // Being one change behind is how a fleet that moves looks; only time tells a router that hangs. Nor does
                // it help to be at one with a replica that hangs: while this one is connected, it knows better.
                let behind = source.connected && router.behind > VIEW_MAX_AGE;
                let follows = !behind && router.view_age <= VIEW_MAX_AGE;
                router.view.is_some() && (router.view == *view || follows)
            }
            Fleet::NotWatched | Fleet::TooMany | Fleet::Off | Fleet::Local { .. } => true,
        }
    }

    /// What is kept out of the fleet, or is in it as it was before; of routers that read it themselves, the one that
    /// refuses most of a kind speaks for that kind.
    pub(super) fn refused(&self) -> Refused {
        match &self.fleet {
            Fleet::NotWatched | Fleet::TooMany | Fleet::Off => Refused::default(),
            Fleet::Pushed { refused, .. } => refused.clone(),
            Fleet::Local { .. } => {
                let mut most: BTreeMap<EventKind, u64> = BTreeMap::new();
                for told in self.reports().flat_map(|report| &report.local_refused) {
                    let known = EventKind::ALL.into_iter().find(|kind| kind.as_str() == told.kind);
                    // A newer router knows more kinds.
                    let of_kind = most.entry(known.unwrap_or(EventKind::Unsupported)).or_default();
                    *of_kind = told.count.max(*of_kind);
                }
                let mut refused = Refused::default();
                for (kind, count) in most {
                    refused.add(kind, count);
                }
                refused
            }
        }
    }

    /// The fleet, counted; of routers that read it themselves, the one that sees most speaks.
    pub(super) fn counts(&self) -> Option<&push::FleetCounts> {
        match &self.fleet {
            Fleet::NotWatched | Fleet::TooMany | Fleet::Off => None,
            Fleet::Pushed { counts, view, .. } => view.is_some().then_some(counts),
            Fleet::Local { .. } => self
                .reports()
                .filter_map(|report| report.local_fleet.as_ref())
                .max_by_key(|counts| {
                    u64::from(counts.prefill) + u64::from(counts.decode) + u64::from(counts.aggregated)
                }),
        }
    }
}
