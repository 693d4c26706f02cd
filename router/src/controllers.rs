//! The operator's controllers: what they push goes to discovery and to reloads, what this process is goes to them.

use std::{sync::Arc, time::Duration};

use continuum_config::Config;
use continuum_discovery::{Pushed, SourceKind};
use continuum_events::status::State;
use continuum_fleet::{
    Census, Refused,
    view::{FleetView, NameKind},
};
use continuum_push::{Client, Counts, Pool, Report, Settings, Source, Subscriptions, ViewId};
use continuum_runtime::{cell::Cell, tasks::Spawner};
use prometheus::Registry;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use crate::{app::App, reload::Reloader};

/// From one look at pools, subscriptions and requests to the next. The view in force is told at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Sessions with controllers, and what is told on them.
pub struct Controllers {
    client: Client,
    settings: watch::Sender<Option<Settings>>,
    report: watch::Sender<Report>,
}

impl Controllers {
    /// Starts the sessions that the configuration asks for. Beside them: what discovery shows with the source
    /// `controller`.
    ///
    /// # Errors
    /// When their metrics are registered already.
    pub fn start(
        spawner: &Spawner,
        config: &Config,
        registry: &Registry,
    ) -> Result<(Self, watch::Receiver<Pushed>), prometheus::Error> {
        let (settings, wanted) = watch::channel(Settings::of(config));
        let (report, told) = watch::channel(Report::default());
        let client = Client::spawn(spawner, wanted, told, registry)?;
        let (to_discovery, pushed) = watch::channel(Pushed::default());
        let cell = client.pushed();
        spawner.essential("pushed view", |stop| async move {
            stop.run_until_cancelled(hand_over(cell, to_discovery)).await;
            Ok(())
        });
        let this = Self {
            client,
            settings,
            report,
        };
        Ok((this, pushed))
    }

    /// How the sessions fare.
    #[must_use]
    pub fn status(&self) -> Arc<continuum_push::Status> {
        self.client.status().load()
    }

    /// What the followed controller has told.
    #[must_use]
    pub fn pushed(&self) -> Arc<continuum_push::Pushed> {
        self.client.pushed().load()
    }

    /// The newest configuration that came.
    #[must_use]
    pub fn updates(&self) -> watch::Receiver<Option<Arc<continuum_push::Update>>> {
        self.client.updates()
    }

    /// What the controllers are told.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report.borrow().clone()
    }

    /// Takes over new settings.
    pub fn reload(&self, config: &Config) {
        let next = Settings::of(config);
        self.settings
            .send_if_modified(|now| std::mem::replace(now, next.clone()) != next);
    }
}

/// Tells discovery what came.
async fn hand_over(cell: Arc<Cell<continuum_push::Pushed>>, discovery: watch::Sender<Pushed>) {
    let mut changes = cell.subscribe();
    loop {
        changes.borrow_and_update();
        discovery.send_replace(pushed(&cell.load()));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn pushed(told: &continuum_push::Pushed) -> Pushed {
    let source = told.source.as_ref();
    let last_error = if told.followed {
        source.and_then(|source| source.last_error.clone())
    } else {
        Some("no controller is reached".to_owned())
    };
    Pushed {
        number: if told.id.is_some() { told.number } else { 0 },
        view: told.view.clone(),
        origins: Arc::clone(&told.origins),
        connected: told.followed && source.is_some_and(|source| source.connected),
        synced: !told.kept && told.id.is_some(),
        stale: told.kept || source.is_some_and(|source| source.stale),
        last_error,
    }
}

/// Keeps the report current.
pub async fn keep_report(app: Arc<App>, reloader: Arc<Reloader>) {
    let mut fleet = app.fleet.changes();
    let mut discovery = app.fleet.status_changes();
    let told = app.controllers.client.pushed();
    let mut pushed = told.subscribe();
    let mut configs = reloader.versions();
    let mut look = interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let looks = tokio::select! {
            _ = look.tick() => true,
            changed = fleet.changed() => { if changed.is_err() { return } false }
            changed = discovery.changed() => { if changed.is_err() { return } false }
            changed = pushed.changed() => { if changed.is_err() { return } false }
            changed = configs.changed() => { if changed.is_err() { return } false }
        };
        if !app.controllers.status().configured {
            continue;
        }
        let mut next = app.controllers.report();
        next.view = view_in_force(&app, &told.load(), next.view);
        next.ready = app.not_ready().is_none();
        let versions = configs.borrow_and_update().clone();
        // Whoever acknowledges a config tells what there is with it, and not what was there before.
        let all = looks || next.config != versions.in_force;
        next.config = versions.in_force;
        next.refused = versions.refused;
        if all {
            next.pending = reloader
                .restart_needed()
                .iter()
                .map(|path| (*path).to_owned())
                .collect();
            next.pools = pools(&app);
            let (served, unlisted) = models(&app);
            next.served_models = Some(served);
            next.backend_models = Some(count(app.backends.load().iter().map(|one| one.offered()).sum()));
            next.unlisted_models = unlisted;
            next.subscriptions = subscriptions(&app);
            next.in_flight = app.in_flight.count().into();
            next.local = local(&app);
            next.local_refused = match next.local {
                Some(_) => app.fleet.status().refused.clone(),
                None => Refused::default(),
            };
        }
        app.controllers
            .report
            .send_if_modified(|now| std::mem::replace(now, next.clone()) != next);
    }
}

/// While a newer view is on its way to the table, the one before is in force. None is while what came is of another fleet
/// than the one that is configured.
fn view_in_force(app: &App, told: &continuum_push::Pushed, before: Option<ViewId>) -> Option<ViewId> {
    let status = app.fleet.status();
    if status.upstream.is_none() || status.pushed == 0 {
        return None;
    }
    match app.fleet.pushed_in_force() {
        Some(number) if number == told.number => told.id,
        Some(_) | None => before,
    }
}

fn pools(app: &App) -> Vec<Pool> {
    app.backends
        .load()
        .pools()
        .map(|pool| {
            let enabled = pool
                .replicas()
                .iter()
                .filter(|replica| replica.settings().enabled);
            Pool {
                namespace: pool.graph().to_string(),
                replicas: count(enabled.clone().count()),
                healthy: count(enabled.filter(|replica| replica.is_up()).count()),
            }
        })
        .collect()
}

/// How many base names of the fleet can be asked for now, and those that only lack a frontend that lists them.
fn models(app: &App) -> (u32, Vec<String>) {
    let backends = app.backends.load();
    let mut unlisted = Vec::new();
    let mut served = 0_usize;
    let table = app.fleet.table();
    for name in table
        .served()
        .iter()
        .filter(|name| name.kind == NameKind::Base && name.ready)
    {
        let Some(pool) = backends.pool(&name.graph).filter(|pool| pool.is_usable()) else {
            continue;
        };
        if pool.may_serve(name.name.as_str()) {
            served += 1;
        } else {
            unlisted.push(name.name.to_string());
            // Until it is listed somebody waits for it.
            pool.replicas()
                .iter()
                .for_each(|replica| replica.refresh_listing());
        }
    }
    (count(served), unlisted)
}

fn subscriptions(app: &App) -> Subscriptions {
    let mut of = Subscriptions::default();
    for row in app.fleet.subscriptions() {
        of.wanted = of.wanted.saturating_add(1);
        let counter = match row.state {
            State::Pending => &mut of.refused,
            State::Connected => &mut of.connected,
            State::Backoff => &mut of.failing,
            State::Connecting => continue,
        };
        *counter = counter.saturating_add(1);
    }
    of
}

/// For a router that reads its fleet itself.
fn local(app: &App) -> Option<(Source, Counts)> {
    let status = app.fleet.status();
    let kind = status.source.filter(|kind| *kind != SourceKind::Controller)?;
    let source = Source {
        kind: kind.as_str().to_owned(),
        connected: status.connected,
        synced: status.synced,
        stale: status.stale,
        last_error: status.last_error.clone(),
    };
    Some((source, counts(&app.fleet.view())))
}

fn counts(view: &FleetView) -> Counts {
    let mut of = Census::of(view);
    of.unpaired_models.dedup();
    Counts {
        prefill: count(of.prefill),
        decode: count(of.decode),
        aggregated: count(of.aggregated),
        encode: count(of.encode),
        unknown: count(of.unknown),
        models: count(of.models),
        publishers: count(of.publishers),
        unpaired_models: of.unpaired_models,
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
