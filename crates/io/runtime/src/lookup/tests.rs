//! Against a name service that answers when it is told to.

use std::{
    collections::BTreeMap,
    sync::{
        Condvar,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::time::{advance, timeout};

use super::*;

const PATIENCE: Duration = Duration::from_millis(100);
/// For what should happen at once; only a failure waits so long.
const SOON: Duration = Duration::from_secs(20);

/// Asked so often; answers hold while it hangs.
#[derive(Clone, Default)]
struct Told(Arc<Inner>);

#[derive(Default)]
struct Inner {
    hangs: Mutex<bool>,
    moved: Condvar,
    answers: Mutex<BTreeMap<String, Vec<SocketAddr>>>,
    begun: AtomicUsize,
    at_once: AtomicUsize,
    most: AtomicUsize,
}

impl Told {
    fn says(&self, host: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        self.0.answers.lock().unwrap().insert(host.to_owned(), addresses);
    }

    fn knows_nothing(&self) {
        self.0.answers.lock().unwrap().clear();
    }

    fn hang(&self, hangs: bool) {
        *self.0.hangs.lock().unwrap() = hangs;
        self.0.moved.notify_all();
    }

    fn begun(&self) -> usize {
        self.0.begun.load(SeqCst)
    }
}

impl Service for Told {
    fn look_up(&self, host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        self.0.begun.fetch_add(1, SeqCst);
        let now = self.0.at_once.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(now, SeqCst);
        let hangs = self.0.hangs.lock().unwrap();
        drop(self.0.moved.wait_while(hangs, |hangs| *hangs).unwrap());
        self.0.at_once.fetch_sub(1, SeqCst);
        let answers = self.0.answers.lock().unwrap();
        answers.get(host).cloned().ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Ends the threads of a test that fails.
impl Drop for Told {
    fn drop(&mut self) {
        self.hang(false);
    }
}

fn name(host: &str, told: &Told) -> Name {
    Name::new(host, 80, Lookups::with(told.clone(), 4))
}

fn found(addresses: &[&str], current: bool) -> Found {
    Found {
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        current,
    }
}

/// What is there without an answer.
async fn known(name: &Name) -> Found {
    timeout(SOON, name.addresses(PATIENCE)).await.unwrap().unwrap()
}

/// Waits for what another thread is about to do.
async fn until(condition: impl Fn() -> bool) {
    let until = std::time::Instant::now() + SOON;
    while !condition() {
        assert!(std::time::Instant::now() < until);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_address_is_never_looked_up() {
    let told = Told::default();
    told.hang(true);
    for (host, is) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")] {
        let name = name(host, &told);
        name.doubt();
        assert_eq!(name.addresses(PATIENCE).await.unwrap(), found(&[is], true));
    }
    assert_eq!(told.begun(), 0);
}

#[tokio::test]
async fn all_who_want_a_name_share_one_look_up() {
    let told = Told::default();
    told.says("a", &["10.0.0.2:80", "10.0.0.1:80"]);
    told.hang(true);
    let name = Arc::new(name("a", &told));
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let name = Arc::clone(&name);
        asked.spawn(async move { name.addresses(PATIENCE).await });
    }
    // Who leaves ends nothing.
    let gone = timeout(Duration::ZERO, name.addresses(PATIENCE)).await;
    assert!(gone.is_err());
    until(|| told.begun() == 1).await;
    told.hang(false);
    while let Some(one) = asked.join_next().await {
        let expected = found(&["10.0.0.2:80", "10.0.0.1:80"], true);
        assert_eq!(one.unwrap().unwrap(), expected, "in the service's order");
    }
    assert_eq!(told.begun(), 1);
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_an_error_for_all_and_asked_again() {
    let told = Told::default();
    let name = name("a", &told);
    for asked in 1..3 {
        let error = name.addresses(PATIENCE).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(told.begun(), asked);
    }
    told.says("a", &[]);
    assert!(name.addresses(PATIENCE).await.is_err(), "no address is no answer");
    told.says("a", &["10.0.0.1:80"]);
    assert_eq!(
        name.addresses(PATIENCE).await.unwrap(),
        found(&["10.0.0.1:80"], true)
    );
}

#[tokio::test(start_paused = true)]
async fn known_addresses_are_used_while_the_service_hangs_or_fails() {
    let told = Told::default();
    told.says("a", &["10.0.0.1:80"]);
    let name = name("a", &told);
    assert!(name.addresses(PATIENCE).await.unwrap().current);
    told.hang(true);
    advance(ADDRESSES_FRESH - Duration::from_millis(1)).await;
    assert!(name.addresses(PATIENCE).await.unwrap().current);
    assert_eq!(told.begun(), 1, "they are fresh");

    advance(Duration::from_millis(1)).await;
    let last = found(&["10.0.0.1:80"], false);
    let asked = Instant::now();
    assert_eq!(known(&name).await, last);
    assert!(asked.elapsed() <= PATIENCE + Duration::from_millis(1));
    // Whoever comes later waits for nothing, for as long as it hangs.
    for _ in 0..100 {
        advance(Duration::from_secs(60)).await;
        let asked = Instant::now();
        assert_eq!(known(&name).await, last);
        assert!(asked.elapsed() <= Duration::from_millis(1));
    }
    until(|| told.begun() == 2).await;

    told.knows_nothing();
    told.hang(false);
    until(|| lock(&name.state).failed).await;
    assert_eq!(known(&name).await, last);
    name.doubt();
    assert_eq!(known(&name).await, last);
    assert_eq!(told.begun(), 2, "not asked again at once");
    advance(LOOKUP_PAUSE).await;
    assert_eq!(known(&name).await, last);
    until(|| told.begun() == 3 && lock(&name.state).asking.is_none()).await;

    told.says("a", &["10.0.0.7:80"]);
    advance(LOOKUP_PAUSE).await;
    let _either = name.addresses(PATIENCE).await.unwrap();
    until(|| lock(&name.state).asking.is_none()).await;
    assert_eq!(
        name.addresses(PATIENCE).await.unwrap(),
        found(&["10.0.0.7:80"], true)
    );
}

#[tokio::test]
async fn addresses_in_doubt_are_looked_up_again() {
    let told = Told::default();
    told.says("a", &["10.0.0.1:80"]);
    let name = name("a", &told);
    assert!(name.addresses(SOON).await.is_ok());
    told.says("a", &["10.0.0.2:80"]);
    assert_eq!(name.addresses(SOON).await.unwrap(), found(&["10.0.0.1:80"], true));
    name.doubt();
    assert_eq!(name.addresses(SOON).await.unwrap(), found(&["10.0.0.2:80"], true));
    assert_eq!(told.begun(), 2);
}

#[tokio::test]
async fn look_ups_that_hang_are_bounded_with_and_without_their_callers() {
    let told = Told::default();
    told.hang(true);
    let lookups = Lookups::with(told.clone(), 4);
    let names: Vec<_> = (0..50)
        .map(|it| Name::new(&format!("host{it}"), 80, lookups.clone()))
        .collect();
    for name in &names {
        told.says(&name.host, &["10.0.0.1:80"]);
        assert!(timeout(Duration::ZERO, name.addresses(PATIENCE)).await.is_err());
    }
    until(|| told.begun() == 4).await;
    told.hang(false);
    for name in &names {
        assert!(name.addresses(PATIENCE).await.is_ok());
    }
    assert_eq!((told.begun(), told.0.most.load(SeqCst)), (50, 4));
    until(|| lookups.permits.available_permits() == 4).await;
}

/// Blocking work of others goes on, and the runtime ends.
#[test]
fn a_look_up_that_hangs_holds_nobody_up() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    // Dropped before the runtime, so that a failure ends.
    let told = Told::default();
    told.hang(true);
    runtime.block_on(async {
        let name = name("a", &told);
        assert!(timeout(Duration::ZERO, name.addresses(PATIENCE)).await.is_err());
        until(|| told.begun() == 1).await;
        let done = timeout(SOON, tokio::task::spawn_blocking(|| 7)).await;
        assert_eq!(done.unwrap().unwrap(), 7);
    });
    let (ended, end) = std::sync::mpsc::channel();
    thread::spawn(move || {
        drop(runtime);
        ended.send(()).unwrap();
    });
    assert!(end.recv_timeout(SOON).is_ok());
}

#[tokio::test]
async fn the_system_knows_this_host() {
    let name = Name::new("localhost", 80, Lookups::new(1));
    let found = name.addresses(SOON).await.unwrap();
    assert!(found.current && found.addresses.iter().all(|it| it.ip().is_loopback()));
}
