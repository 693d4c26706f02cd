use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{advance, sleep};

use super::*;
use crate::push::{
    Key, Pod,
    limits::{FORGIVE, MAX_REFUSALS, MAX_REVIEWS_PER_PEER},
};

/// Counts the questions, answers after a while, and knows tokens that begin with `good`.
#[derive(Default)]
struct Counting {
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most: AtomicUsize,
}

impl Authenticator for Counting {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let now = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            let wait = if token == "good-slow" { 60_000 } else { 100 };
            sleep(Duration::from_millis(wait)).await;
            self.at_once.fetch_sub(1, Ordering::Relaxed);
            if !token.starts_with("good") {
                return Err(AuthError::Refused("not a router".to_owned()));
            }
            Ok(Identity {
                key: Key {
                    namespace: "ns".into(),
                    name: token.into(),
                },
                pod: Pod {
                    name: "pod".into(),
                    uid: "uid".into(),
                },
            })
        })
    }
}

fn peer(number: u8) -> Peer {
    Peer::from(std::net::IpAddr::from([10, 0, 0, number]))
}

#[tokio::test(start_paused = true)]
async fn who_has_many_bad_tokens_keeps_nobody_else_waiting() {
    let asked = Arc::new(Counting::default());
    let cached = Cached::new(Arc::clone(&asked) as Arc<dyn Authenticator>);
    cached.authenticate("good-before", peer(1)).await.unwrap();
    let before = asked.asked.load(Ordering::Relaxed);
    let tokens: Vec<String> = (0..200).map(|number| format!("bad-{number}")).collect();
    let flood = futures::future::join_all(tokens.iter().map(|token| cached.authenticate(token, peer(1))));
    let honest = async {
        sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        cached.authenticate("good-other", peer(2)).await.unwrap();
        // One question takes as long here.
        assert!(
            begun.elapsed() <= Duration::from_millis(101),
            "{:?}",
            begun.elapsed()
        );
    };
    let (flood, ()) = futures::join!(flood, honest);
    let paused = flood
        .iter()
        .filter(|answer| **answer == Err(AuthError::Pause))
        .count();
    let asked_of_flood = asked.asked.load(Ordering::Relaxed) - before - 1;
    assert!(flood.iter().all(Result::is_err) && paused > 150, "{paused}");
    let most = usize::try_from(MAX_REFUSALS).unwrap() + MAX_REVIEWS_PER_PEER;
    assert!(asked_of_flood <= most, "{asked_of_flood}");
    // What is remembered as good gets in from there all the same; what is not has to wait.
    cached.authenticate("good-before", peer(1)).await.unwrap();
    assert_eq!(
        cached.authenticate("good-new", peer(1)).await,
        Err(AuthError::Pause)
    );
    advance(FORGIVE).await;
    cached.authenticate("good-new", peer(1)).await.unwrap();
}

/// Knows by looking that no token is a router's.
struct Unasked;

impl Authenticator for Unasked {
    fn authenticate<'a>(&'a self, _token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>> {
        Box::pin(async { panic!("nobody should be asked") })
    }

    fn plausible(&self, _token: &str) -> Result<(), AuthError> {
        Err(AuthError::Refused("of another audience".to_owned()))
    }
}

#[tokio::test]
async fn nobody_is_asked_about_a_token_that_cannot_be_a_routers() {
    let cached = Cached::new(Arc::new(Unasked));
    for _ in 0..100 {
        let answer = cached.authenticate("token", peer(1)).await;
        assert!(
            matches!(answer, Err(AuthError::Refused(_))),
            "and it makes no pause"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_good_token_is_remembered_for_a_while_and_a_bad_one_never() {
    let asked = Arc::new(Counting::default());
    let cached = Cached::new(Arc::clone(&asked) as Arc<dyn Authenticator>);
    let count = || asked.asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(
            cached
                .authenticate("good", peer(1))
                .await
                .unwrap()
                .key
                .name
                .as_ref(),
            "good"
        );
    }
    assert_eq!(count(), 1);
    for _ in 0..2 {
        assert!(matches!(
            cached.authenticate("bad", peer(1)).await,
            Err(AuthError::Refused(_))
        ));
    }
    assert_eq!(count(), 3);
    advance(TOKEN_CACHE).await;
    cached.authenticate("good", peer(1)).await.unwrap();
    assert_eq!(count(), 4, "asked again when the memory is old");
    advance(TOKEN_CACHE / 2).await;
    cached.authenticate("good", peer(1)).await.unwrap();
    assert_eq!(count(), 4, "and remembered again");
}

#[tokio::test(start_paused = true)]
async fn questions_are_bounded_in_number_and_time() {
    let asked = Arc::new(Counting::default());
    let cached = Cached::new(Arc::clone(&asked) as Arc<dyn Authenticator>);
    let tokens: Vec<String> = (0..50).map(|number| format!("bad-{number}")).collect();
    let all = tokens.iter().zip(0..);
    let all = all.map(|(token, from)| cached.authenticate(token, peer(from)));
    assert!(futures::future::join_all(all).await.iter().all(Result::is_err));
    assert_eq!(asked.most.load(Ordering::Relaxed), MAX_REVIEWS);
    assert!(matches!(
        cached.authenticate("good-slow", peer(1)).await,
        Err(AuthError::Unavailable(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn the_memory_is_bounded() {
    let cached = Cached::new(Arc::new(Counting::default()));
    for number in 0..MAX_CACHED_TOKENS + 3 {
        let identity = cached.inner.authenticate("good").await.unwrap();
        cached.remember(*blake3::hash(&number.to_le_bytes()).as_bytes(), &identity);
    }
    assert!(cached.known.lock().unwrap().len() <= MAX_CACHED_TOKENS);
}
