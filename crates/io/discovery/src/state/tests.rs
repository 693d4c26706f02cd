use std::{fs, path::Path};

use super::*;

fn names() -> Vec<Graph> {
    vec!["dynamo".into()]
}

fn keep_in(dir: &Path) -> Keep {
    Keep {
        dir: dir.join("state"),
        scope: "etcd a generation dynamo".into(),
        namespaces: names(),
    }
}

fn entries(list: &[(&str, &str)]) -> Entries {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
        .collect()
}

#[test]
fn what_is_kept_comes_back_for_the_same_scope_only() {
    let dir = tempfile::tempdir().unwrap();
    let keep = keep_in(dir.path());
    let mut mirror = Mirror::new(keep.clone());
    assert!(mirror.take().is_none());
    mirror.reset(
        entries(&[("a", "{\"x\":\"\\n\"}"), ("b", "line\nbreak"), ("c", "gone")]),
        &names(),
    );
    mirror.apply(&Change::Put {
        key: "a".into(),
        value: b"new".to_vec(),
    });
    mirror.apply(&Change::Put {
        key: "d".into(),
        value: b"\xff".to_vec(),
    });
    mirror.apply(&Change::Delete { key: "c".into() });
    let (keep_again, records) = mirror.take().unwrap();
    write(&keep_again, &records).unwrap();
    assert!(mirror.take().is_none(), "nothing new to write");

    assert_eq!(
        read(&keep).unwrap(),
        Some(entries(&[("a", "new"), ("b", "line\nbreak")]))
    );
    let other = Keep {
        scope: "etcd b generation dynamo".into(),
        ..keep.clone()
    };
    assert_eq!(read(&other).unwrap(), None);
    assert_eq!(read(&keep_in(&dir.path().join("elsewhere"))).unwrap(), None);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(keep.dir.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_file_that_is_not_ours_is_an_error_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let keep = keep_in(dir.path());
    fs::create_dir_all(&keep.dir).unwrap();
    let header = format!("[\"{FORMAT}\",\"{}\",1]", keep.scope);
    for text in [
        "",
        "x",
        "[]",
        "[1,2,3]",
        "\u{0}\u{1}",
        &format!("{header}\n{{}}"),
        &format!("{header}\n[\"a\",\"b\"]\n[\"c\",\"d\"]"),
    ] {
        fs::write(keep.dir.join(FILE), text).unwrap();
        assert!(read(&keep).is_err(), "{text:?}");
    }
    fs::write(keep.dir.join(FILE), b"\xff\xfe").unwrap();
    assert!(read(&keep).is_err());
    // A file cut short has lost records, not sense.
    fs::write(
        keep.dir.join(FILE),
        format!("[\"{FORMAT}\",\"{}\",2]\n[\"a\",\"b\"]\n", keep.scope),
    )
    .unwrap();
    assert_eq!(read(&keep).unwrap().map(|entries| entries.len()), Some(1));
}

#[test]
fn the_mirror_stays_within_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut mirror = Mirror::new(keep_in(dir.path()));
    mirror.reset(Vec::new(), &names());
    let big = vec![b'x'; STATE_BYTES / 2];
    for key in ["a", "b", "c", "d"] {
        mirror.apply(&Change::Put {
            key: key.into(),
            value: big.clone(),
        });
        assert!(mirror.bytes <= STATE_BYTES);
    }
    assert_eq!(mirror.records.len(), 1);
    mirror.apply(&Change::Put {
        key: "a".into(),
        value: b"small".to_vec(),
    });
    mirror.apply(&Change::Put {
        key: "b".into(),
        value: big,
    });
    assert_eq!(mirror.records.len(), 2);
    for key in ["a", "b"] {
        mirror.apply(&Change::Delete { key: key.into() });
    }
    assert_eq!((mirror.bytes, mirror.records.len()), (0, 0));
}

/// A watch goes on while other namespaces are listed: what it tells is no fleet.
#[test]
fn nothing_is_written_before_the_whole_of_it_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let put = Change::Put {
        key: "a".into(),
        value: b"{}".to_vec(),
    };
    let mut keep = keep_in(dir.path());
    keep.namespaces.push("other".into());
    let mut mirror = Mirror::new(keep);
    mirror.apply(&put);
    assert!(mirror.take().is_none(), "one record of a fleet");
    // A list that began before the other namespace was wanted.
    mirror.reset(entries(&[("a", "{}"), ("b", "{}")]), &names());
    mirror.apply(&put);
    assert!(mirror.take().is_none(), "one namespace of two");
    mirror.reset(
        entries(&[("a", "{}"), ("b", "{}"), ("c", "{}")]),
        &["other".into(), "more".into(), "dynamo".into()],
    );
    mirror.apply(&put);
    let (_, records) = mirror.take().unwrap();
    assert_eq!(records.len(), 3);
}
