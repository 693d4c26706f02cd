//! Steps of a pass that no whole pass can be made to take at a chosen moment, against real etcd.

use continuum_fleet::NamespaceMatch;
use continuum_testkit::etcd::Etcd as Process;
use etcd_client::Client;

use super::*;
use crate::{
    limits::{MAX_MESSAGE_BYTES, PAGE_KEYS},
    source::Watch as _,
};

#[test]
fn sixteen_silent_members_still_fit_in_a_seed() {
    for count in 1..=16_u32 {
        assert!(share(count as usize) * count < SEED_TIMEOUT, "{count}");
    }
    assert_eq!(share(1), CONTACT_TIMEOUT);
}

fn source(etcd: &Process) -> Etcd {
    let namespaces = vec![Graph::from("dynamo")];
    Etcd::new(
        Settings::new(
            vec![etcd.url().to_owned()],
            namespaces,
            NamespaceMatch::Generation,
        ),
        0,
    )
}

fn key(index: usize) -> String {
    format!("v1/instances/dynamo/decode/generate/{index:x}")
}

#[tokio::test]
async fn a_watch_whose_start_was_compacted_away_ends_the_pass() {
    let etcd = Process::start();
    let mut writer = Client::connect([etcd.url()], None).await.unwrap();
    writer.put(key(1), "{}", None).await.unwrap();
    let mut source = source(&etcd);
    let mut member = source.contact().await.unwrap();
    let ranges = Ranges::new(&source.settings.namespaces, NamespaceMatch::Generation);
    let listed = list::list(&mut member, &ranges, PAGE_KEYS, &mut source.said)
        .await
        .unwrap();
    assert_eq!((listed.seed.entries.len(), listed.prefixes.len()), (1, 4));

    // Between the list and its watch.
    for _ in 0..3 {
        writer.put(key(2), "{}", None).await.unwrap();
    }
    let head = writer.get("x", None).await.unwrap().header().unwrap().revision();
    writer.compact(head, None).await.unwrap();
    // etcd says so when it creates the watch, or right after it.
    let end = match EtcdWatch::open(&member, &listed.prefixes, listed.revision + 1).await {
        Ok(mut watch) => watch.next().await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert!(matches!(end, Err(Error::Compacted)), "{end:?}");

    let (seed, _watch) = source.open().await.unwrap();
    assert_eq!(seed.entries.len(), 2, "the next pass lists anew");
}

#[tokio::test]
async fn a_page_beyond_the_largest_message_is_read_in_smaller_ones() {
    // Just below etcd's own limit of a request.
    const RECORD: usize = 1_400_000;
    let etcd = Process::start();
    let mut writer = Client::connect([etcd.url()], None).await.unwrap();
    let records = MAX_MESSAGE_BYTES / RECORD + 3;
    for index in 0..records {
        writer.put(key(index), vec![b' '; RECORD], None).await.unwrap();
    }
    let (seed, _watch) = source(&etcd).open().await.unwrap();
    assert_eq!(seed.entries.len(), records);
    assert_eq!(seed.lost, crate::source::Lost::default());
}

#[tokio::test]
async fn every_page_size_lists_every_key_once() {
    let etcd = Process::start();
    let mut writer = Client::connect([etcd.url()], None).await.unwrap();
    let expected: Vec<String> = (0x10..0x17).map(key).collect();
    for key in &expected {
        writer.put(key.as_str(), "{}", None).await.unwrap();
    }
    for page_keys in [0, 1, 2, 3, 6, 7, 8] {
        let mut source = source(&etcd);
        source.settings.page_keys = page_keys;
        let (seed, _watch) = source.open().await.unwrap();
        let keys: Vec<String> = seed.entries.into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, expected, "pages of {page_keys}");
    }
}

#[tokio::test]
async fn a_record_larger_than_a_message_is_stepped_over() {
    // A cluster may be told to take larger requests than we read.
    let options = continuum_testkit::etcd::Options {
        flags: vec!["--max-request-bytes=67108864".into()],
        ..Default::default()
    };
    let etcd = Process::start_with(&options);
    let mut writer = Client::connect([etcd.url()], None).await.unwrap();
    writer.put(key(1), "{}", None).await.unwrap();
    writer
        .put(key(2), vec![b' '; MAX_MESSAGE_BYTES + 1], None)
        .await
        .unwrap();
    writer.put(key(3), "{}", None).await.unwrap();
    let (seed, _watch) = source(&etcd).open().await.unwrap();
    let keys: Vec<String> = seed.entries.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [key(1), key(3)]);
    assert_eq!(seed.lost.over_capacity, 1);
}
