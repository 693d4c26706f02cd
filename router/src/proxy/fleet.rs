//! What a build with fleets does for a pinned route.

use std::sync::Arc;

use bytes::Bytes;
use continuum_fleet::view::NameKind;
use continuum_routing::picker::{Chosen, NoPick, Reason, Served};

use super::{Done, Worker, guard::Guard};
use crate::{
    app::App,
    backends::Set,
    dispatch::serve::{self, Ask},
    error::Error,
    ingress::{
        body::Inspected,
        models::{Models, Offer, Owner},
        routes::Route,
    },
    live::Live,
    metrics::Path,
    select::{self, Selection},
};

/// Picked and booked workers.
pub(super) use crate::select::Pin;

/// Serves a request by the fleet. `None`: no worker of the fleet serves the model, ordinary routing may.
pub(super) async fn answer(
    app: &App,
    live: &Live,
    route: Route,
    ask: &Ask,
    inspected: &Inspected,
    body: &Bytes,
    guard: &mut Guard,
) -> Result<Option<Done>, Error> {
    if !live.pinning {
        return Ok(None);
    }
    guard.considered();
    let set = app.backends.load();
    let may_fall_back = live.config.disaggregated_serving.fallback_to_unified;
    let mut selection = Selection::new(&app.fleet, live, &set, &app.selections, inspected, body);
    selection.know(route, &ask.outbound.body).await;
    // Attempts come one after the other, and so do the texts that they are sent.
    let _rewritten = app.bodies.room(live).share(selection.rewritten_bytes())?;
    let metrics = app.backends.metrics();
    let model = || ask.model.clone();
    let served = match selection.pick() {
        Ok(pin) => serve::pinned(ask, &set, &mut selection, pin, may_fall_back, metrics).await?,
        Err(NoPick::NoModel) => return Ok(None),
        Err(NoPick::NotReady) => {
            let failed = Error::ModelNotReady { model: model() };
            serve::instead(ask, &set, failed, may_fall_back, metrics).await?
        }
        Err(NoPick::NoCandidate) => {
            let failed = Error::NoCandidate { model: model() };
            serve::instead(ask, &set, failed, may_fall_back, metrics).await?
        }
    };
    let path = match &served.pin {
        None => Path::Unified,
        Some(pin) if pin.pick.prefill.is_some() => Path::Disaggregated,
        Some(pin) if pin.pick.decode_reason == Reason::ConditionalBypass => Path::Unified,
        Some(_) => Path::Aggregated,
    };
    let renamed = selection
        .renamed()
        .filter(|_| served.pin.is_some())
        .map(ToString::to_string);
    Ok(Some(Done {
        served,
        path,
        renamed,
    }))
}

/// The pinned workers, as the head of the answer may tell them: decode, then prefill.
pub(super) fn pins(served: &serve::Served<Pin>) -> (Option<Worker>, Option<Worker>) {
    let Some(pin) = &served.pin else {
        return (None, None);
    };
    let tell = |chosen: &Chosen| Worker {
        namespace: chosen.worker.key.namespace.clone(),
        pinned: select::pinned(chosen),
    };
    (Some(tell(&pin.pick.decode)), pin.pick.prefill.as_ref().map(tell))
}

/// The names that the fleet serves.
pub(super) fn served(app: &App, live: &Live) -> Arc<[Served]> {
    if live.pinning {
        app.fleet.table().served()
    } else {
        Arc::default()
    }
}

/// Those of them, and of `model_map`, that can be asked for now. Aliases and adapters are offered while the
/// frontends list them.
pub(super) fn offers<'a>(served: &'a [Served], live: &'a Live, set: &Set) -> Vec<Offer<'a>> {
    let mut offers = Vec::new();
    let offered = served.iter().filter(|name| {
        name.ready
            && set.pool(&name.graph).is_some_and(|pool| {
                pool.is_usable() && (name.kind == NameKind::Base || pool.lists(name.name.as_str()))
            })
    });
    offers.extend(offered.map(|name| Offer {
        id: name.name.as_str(),
        owner: Owner::Fleet,
        max_model_len: name.max_model_len,
    }));
    let fleet = Models::new(offers.iter().cloned());
    let mapped = live.model_map.iter().filter_map(|(asked, target)| {
        Some(Offer {
            id: asked.as_str(),
            owner: Owner::Mapped,
            max_model_len: fleet.max_model_len(target.as_str())?,
        })
    });
    offers.extend(mapped);
    offers
}

/// The first byte of a pinned answer: its prefill is done.
pub(super) fn first_byte(app: &App, pin: &Pin) {
    pin.first_byte(app.fleet.now());
}
