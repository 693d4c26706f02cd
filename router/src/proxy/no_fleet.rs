//! What a build without fleets does for a pinned route: nothing, ordinary routing serves it.

use std::convert::Infallible;

use bytes::Bytes;

use super::{Done, Worker, guard::Guard};
use crate::{
    app::App,
    backends::Set,
    dispatch::serve::{Ask, Served},
    error::Error,
    ingress::{body::Inspected, models::Offer, routes::Route},
    live::Live,
};

/// Nothing is ever pinned.
pub(super) type Pin = Infallible;

pub(super) async fn answer(
    _: &App,
    _: &Live,
    _: Route,
    _: &Ask,
    _: &Inspected,
    _: &Bytes,
    _: &mut Guard,
) -> Result<Option<Done>, Error> {
    Ok(None)
}

pub(super) fn pins(_: &Served<Pin>) -> (Option<Worker>, Option<Worker>) {
    (None, None)
}

pub(super) fn served(_: &App, _: &Live) -> Vec<Infallible> {
    Vec::new()
}

pub(super) fn offers<'a>(_: &'a [Infallible], _: &'a Live, _: &Set) -> Vec<Offer<'a>> {
    Vec::new()
}

pub(super) fn first_byte(_: &App, pin: &Pin) {
    match *pin {}
}
