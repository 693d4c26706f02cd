use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{advance, sleep};

use super::*;
use crate::push::{Key, Pod};

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
            let wait = if token == "good-slow" { 60 } else { 1 };
            sleep(Duration::from_secs(wait)).await;
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

#[tokio::test(start_paused = true)]
async fn a_good_token_is_remembered_for_a_while_and_a_bad_one_never() {
    let asked = Arc::new(Counting::default());
    let cached = Cached::new(Arc::clone(&asked) as Arc<dyn Authenticator>);
    let count = || asked.asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(
            cached.authenticate("good").await.unwrap().key.name.as_ref(),
            "good"
        );
    }
    assert_eq!(count(), 1);
    for _ in 0..2 {
        assert!(matches!(
            cached.authenticate("bad").await,
            Err(AuthError::Refused(_))
        ));
    }
    assert_eq!(count(), 3);
    advance(TOKEN_CACHE).await;
    cached.authenticate("good").await.unwrap();
    assert_eq!(count(), 4, "asked again when the memory is old");
    advance(TOKEN_CACHE / 2).await;
    cached.authenticate("good").await.unwrap();
    assert_eq!(count(), 4, "and remembered again");
}

#[tokio::test(start_paused = true)]
async fn questions_are_bounded_in_number_and_time() {
    let asked = Arc::new(Counting::default());
    let cached = Cached::new(Arc::clone(&asked) as Arc<dyn Authenticator>);
    let tokens: Vec<String> = (0..50).map(|number| format!("bad-{number}")).collect();
    let all = futures::future::join_all(tokens.iter().map(|token| cached.authenticate(token))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(asked.most.load(Ordering::Relaxed), MAX_REVIEWS);
    assert!(matches!(
        cached.authenticate("good-slow").await,
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
