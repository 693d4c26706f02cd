use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use continuum_fleet::Change;

use super::*;

const BUCKETS: [&str; 4] = ["instances", "mdc", "event_channels", "event_sources"];

fn store() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for bucket in BUCKETS {
        fs::create_dir_all(root.path().join("v1").join(bucket)).unwrap();
    }
    root
}

fn write(root: &Path, name: &str, text: &str) {
    fs::write(root.join(name), text).unwrap();
}

fn scanner(root: &Path) -> Scanner {
    Scanner::new(root.to_owned(), FILE_TTL, 64)
}

/// Changes as `+key=value` and `-key`.
fn scan(scanner: &mut Scanner, now: SystemTime) -> (Vec<String>, Lost) {
    let batch = scanner.scan(now).unwrap();
    let mut changes: Vec<String> = batch
        .changes
        .into_iter()
        .map(|change| match change {
            Change::Put { key, value } => format!("+{key}={}", String::from_utf8(value).unwrap()),
            Change::Delete { key } => format!("-{key}"),
        })
        .collect();
    changes.sort();
    (changes, batch.lost)
}

const NONE: Lost = Lost {
    malformed: 0,
    over_capacity: 0,
};
const A: &str = "v1/instances/dynamo%2Fdecode%2Fgenerate%2F1a";

#[test]
fn names_become_keys_and_touches_without_change_say_nothing() {
    let root = store();
    let mut scanner = scanner(root.path());
    write(root.path(), A, "{}");
    write(
        root.path(),
        "v1/event_channels/namespace%2Fns%252Eone%2Ftopic%2Fkv%5Fmetrics%2F2",
        "c",
    );
    write(root.path(), "v1/instances/.tmp_123", "half");
    let now = SystemTime::now();
    let expected = [
        "+v1/event_channels/namespace/ns%2Eone/topic/kv_metrics/2=c",
        "+v1/instances/dynamo/decode/generate/1a={}",
    ];
    assert_eq!(
        scan(&mut scanner, now),
        (expected.map(String::from).to_vec(), NONE)
    );
    assert_eq!(scan(&mut scanner, now), (vec![], NONE));

    write(root.path(), A, "{}");
    assert_eq!(scan(&mut scanner, now), (vec![], NONE), "touched");
    write(root.path(), A, "{1}");
    assert_eq!(
        scan(&mut scanner, now).0,
        ["+v1/instances/dynamo/decode/generate/1a={1}"]
    );
    fs::remove_file(root.path().join(A)).unwrap();
    assert_eq!(
        scan(&mut scanner, now).0,
        ["-v1/instances/dynamo/decode/generate/1a"]
    );
}

#[test]
fn an_expired_record_is_gone_although_it_lies_there_and_comes_back_when_touched() {
    let root = store();
    let mut scanner = scanner(root.path());
    write(root.path(), A, "{}");
    let now = SystemTime::now();
    assert_eq!(scan(&mut scanner, now).0.len(), 1);
    let touched = fs::metadata(root.path().join(A)).unwrap().modified().unwrap();
    assert_eq!(
        scan(&mut scanner, touched + FILE_TTL - Duration::from_millis(1)).0,
        [""; 0]
    );
    assert_eq!(
        scan(&mut scanner, touched + FILE_TTL).0,
        ["-v1/instances/dynamo/decode/generate/1a"]
    );
    assert!(root.path().join(A).exists(), "we never delete");
    write(root.path(), A, "{}");
    assert_eq!(scan(&mut scanner, SystemTime::now()).0.len(), 1);
    // A writer whose clock is ahead is alive.
    assert_eq!(
        scan(&mut scanner, touched - Duration::from_secs(3_600)).0,
        [""; 0]
    );
}

#[test]
fn hostile_entries_are_counted_once_and_never_fatal() {
    let root = store();
    let mut scanner = scanner(root.path());
    let folder = root.path().join("v1/instances");
    write(root.path(), A, &"x".repeat(65));
    fs::write(folder.join("%ff"), "x").unwrap();
    fs::create_dir(folder.join("a%2Fdirectory")).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        fs::write(folder.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("dynamo%2Flink")).unwrap();
    }
    let lost = Lost {
        malformed: 2,
        over_capacity: 1,
    };
    assert_eq!(scan(&mut scanner, SystemTime::now()), (vec![], lost));
    assert_eq!(scan(&mut scanner, SystemTime::now()), (vec![], NONE), "told once");
}

#[test]
fn a_missing_bucket_is_empty_and_a_missing_root_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let mut present = scanner(root.path());
    assert_eq!(scan(&mut present, SystemTime::now()), (vec![], NONE));
    let error = scanner(&root.path().join("nowhere"))
        .scan(SystemTime::now())
        .unwrap_err();
    assert!(error.to_string().contains("nowhere") && error.to_string().contains("no such directory"));
}

#[test]
fn an_error_forgets_nothing() {
    let root = store();
    let mut scanner = scanner(root.path());
    write(root.path(), A, "{}");
    assert_eq!(scan(&mut scanner, SystemTime::now()).0.len(), 1);
    let away = root.path().with_extension("away");
    fs::rename(root.path(), &away).unwrap();
    assert!(scanner.scan(SystemTime::now()).is_err());
    fs::rename(&away, root.path()).unwrap();
    assert_eq!(scan(&mut scanner, SystemTime::now()), (vec![], NONE));
}

#[tokio::test]
async fn a_dropped_call_loses_no_change() {
    let root = store();
    let mut store = FileStore::new(root.path().to_owned(), 64);
    let (seed, mut watch) = store.open().await.unwrap();
    assert!(seed.entries.is_empty());
    write(root.path(), A, "{}");
    // Dropped again and again at whatever point it is.
    let batch = loop {
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(7), watch.next()).await {
            break batch.unwrap();
        }
    };
    assert_eq!(batch.changes.len(), 1);
}
