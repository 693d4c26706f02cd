//! The whole way, from a fleet's cards to hashes.

use std::{path::Path, time::Duration};

use continuum_config::model::Kv;
use continuum_fleet::{
    Generation,
    ids::{Graph, InstanceId, Namespace, WorkerKey},
    view::{Artifacts, Card, NameKind, Role, Seen, ServedName, Worker},
};
use continuum_runtime::tasks::Tasks;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{artifact::Checksum, fetch::Hub, metrics::Outcome, model::tests::model_dir};

/// Much longer than anything takes; reached only when a test fails.
const LONG: Duration = Duration::from_secs(60);

struct Rig {
    tasks: Tasks,
    view: Arc<Cell<FleetView>>,
    settings: watch::Sender<Settings>,
    prompts: Prompts,
    metrics: Metrics,
}

impl Rig {
    fn new(settings: Settings) -> Self {
        let tasks = Tasks::new();
        let view = Arc::<Cell<FleetView>>::default();
        let (sender, receiver) = watch::channel(settings);
        let metrics = Metrics::new().unwrap();
        let prompts = Prompts::spawn(&tasks.spawner(), view.clone(), receiver, metrics.clone());
        Self {
            tasks,
            view,
            settings: sender,
            prompts,
            metrics,
        }
    }

    fn workers(&self, workers: &[Worker]) {
        let workers = workers
            .iter()
            .map(|worker| (worker.key.clone(), Arc::new(worker.clone())));
        self.view.publish(FleetView {
            workers: workers.collect(),
            ..FleetView::default()
        });
    }

    /// What a plain question gets once it is `expected`.
    async fn becomes(&self, model: &str, expected: Result<usize, Unavailable>) {
        let until = Instant::now() + LONG;
        loop {
            let found = self
                .ask(model, r#"{"messages":[{"role":"user","content":"hello there"}]}"#)
                .await;
            let found = found.map(|prepared| prepared.tokens.len());
            if found == expected {
                return;
            }
            assert!(Instant::now() < until, "{model}: {found:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn counts(&self, outcome: Outcome, times: u64) {
        let until = Instant::now() + LONG;
        while self.metrics.counted(outcome) < times {
            assert!(Instant::now() < until, "{outcome:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(self.metrics.counted(outcome), times, "{outcome:?}");
    }

    async fn ask(&self, model: &str, body: &str) -> Result<Prepared, Unavailable> {
        self.ask_with(model, body, &[plain(16)], None, None).await
    }

    async fn ask_with(
        &self,
        model: &str,
        body: &str,
        blocks: &[Blocks],
        salt: Option<&str>,
        adapter: Option<&str>,
    ) -> Result<Prepared, Unavailable> {
        let (model, body) = (ModelName::new(model), Bytes::copy_from_slice(body.as_bytes()));
        let ask = Ask {
            model: &model,
            endpoint: Endpoint::Chat,
            body: &body,
            blocks,
            salt,
            adapter,
        };
        self.prompts.prepare(ask).await
    }

    async fn end(self) {
        assert!(self.tasks.drain(LONG, std::future::pending()).await);
    }
}

const fn plain(size: u32) -> Blocks {
    Blocks { size, ahead: false }
}

fn settings(pinned: &[Checksum]) -> Settings {
    let kv = Kv {
        enabled: true,
        pinned_artifacts: pinned.iter().map(ToString::to_string).collect(),
        ..Kv::default()
    };
    Settings::new(&kv, Hub::default())
}

/// A tokenizer with a token for each ASCII character and two special ones: it loads at once.
fn small_tokenizer() -> String {
    let vocab: serde_json::Map<_, _> = (0_u8..128)
        .map(|byte| (char::from(byte).to_string(), json!(byte)))
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "pre_tokenizer": null, "decoder": null,
        "added_tokens": [
            {"id": 128, "content": "<|a|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 129, "content": "<|b|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        ],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    })
    .to_string()
}

const SMALL_CONFIG: &str =
    r#"{"chat_template": "{% for m in messages %}<|a|>{{ m.role }}:{{ m.content }}<|b|>{% endfor %}"}"#;

/// Files of a model in a folder, and their checksums.
fn write(dir: &Path, tokenizer: &str, config: &str) -> [(String, Checksum); 2] {
    [("tokenizer.json", tokenizer), ("tokenizer_config.json", config)].map(|(name, content)| {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        (
            path.to_str().unwrap().to_owned(),
            Checksum::of(content.as_bytes()),
        )
    })
}

fn slot(kind: &str, path: &str, checksum: Checksum) -> Option<Arc<str>> {
    Some(
        json!({kind: {"path": path, "checksum": checksum.to_string(), "size": 1}})
            .to_string()
            .into(),
    )
}

pub(crate) fn artifacts([tokenizer, config]: &[(String, Checksum); 2]) -> Artifacts {
    Artifacts {
        tokenizer: slot("hf_tokenizer_json", &tokenizer.0, tokenizer.1),
        prompt_formatter: slot("hf_tokenizer_config_json", &config.0, config.1),
        chat_template_file: None,
    }
}

pub(crate) fn worker(id: u64, names: &[(&str, NameKind)], artifacts: Artifacts) -> Worker {
    Worker {
        key: WorkerKey {
            namespace: Namespace::new("dynamo"),
            instance: InstanceId::new(id),
        },
        graph: Graph::new("dynamo"),
        component: "backend".into(),
        endpoint: "generate".into(),
        generation: Generation::Base,
        role: Role::Aggregated,
        names: names
            .iter()
            .map(|(name, kind)| ServedName {
                name: ModelName::new(*name),
                kind: *kind,
            })
            .collect(),
        card: Some(Arc::new(Card {
            block_size: Some(16),
            artifacts,
            ..Card::default()
        })),
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    }
}

const BASE: &[(&str, NameKind)] = &[("m", NameKind::Base)];

/// "<|a|>user:hello there<|b|>".
const HELLO: Result<usize, Unavailable> = Ok(18);

#[tokio::test]
async fn a_real_model_is_loaded_and_hashed_once_it_is_pinned() {
    let dir = model_dir();
    let files = ["tokenizer.json", "tokenizer_config.json"].map(|name| {
        let path = dir.join(name);
        let checksum = Checksum::of(&std::fs::read(&path).unwrap());
        (path.to_str().unwrap().to_owned(), checksum)
    });
    let rig = Rig::new(settings(&[]));
    rig.workers(&[worker(1, BASE, artifacts(&files))]);
    rig.becomes("m", Err(Unavailable::Unpinned)).await;
    rig.counts(Outcome::Unpinned, 1).await;
    // One of two is not enough.
    rig.settings.send_replace(settings(&[files[0].1]));
    rig.becomes("m", Err(Unavailable::Unpinned)).await;
    rig.settings.send_replace(settings(&[files[0].1, files[1].1]));
    rig.becomes("m", Ok(10)).await;
    rig.counts(Outcome::Loaded, 1).await;

    let long = json!({"messages": [{"role": "user", "content": "many words ".repeat(100)}]}).to_string();
    let found = rig
        .ask_with("m", &long, &[plain(16), plain(64), plain(128)], None, None)
        .await
        .unwrap();
    assert_eq!(
        found.hashes.iter().map(|(blocks, _)| *blocks).collect::<Vec<_>>(),
        [plain(16), plain(64)]
    );
    for (blocks, hashes) in &found.hashes {
        assert_eq!(
            Some(hashes),
            hashing::blocks(&found.tokens, blocks.size, None, None).as_ref()
        );
    }
    // Of one size, with and without the token after a block.
    let ahead = Blocks {
        size: 16,
        ahead: true,
    };
    let found = rig
        .ask_with("m", &long, &[ahead, plain(16)], None, None)
        .await
        .unwrap();
    let [(one, speculative), (two, usual)] = found.hashes.as_slice() else {
        unreachable!()
    };
    assert_eq!((*one, *two), (ahead, plain(16)));
    assert_eq!(
        Some(speculative),
        hashing::tests::eagle_blocks(&found.tokens, 16, None, None).as_ref()
    );
    assert!(!usual.is_empty() && usual.iter().all(|hash| !speculative.contains(hash)));
    // Pins may be taken back.
    rig.settings.send_replace(settings(&[]));
    rig.becomes("m", Err(Unavailable::Unpinned)).await;
    rig.end().await;
}

#[tokio::test]
async fn the_salt_and_the_adapter_are_those_that_the_frontend_sees() {
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path(), &small_tokenizer(), SMALL_CONFIG);
    let rig = Rig::new(settings(&[files[0].1, files[1].1]));
    let names = [("m", NameKind::Base), ("lora", NameKind::Adapter)];
    rig.workers(&[worker(1, &names, artifacts(&files))]);
    rig.becomes("m", HELLO).await;
    let body = |extra: &str| format!(r#"{{"messages":[{{"role":"user","content":"hello there"}}]{extra}}}"#);
    for (model, extra, salt, adapter, expected) in [
        ("m", "", None, None, (None, None)),
        ("m", r#","cache_salt":"low""#, None, None, (None, Some("low"))),
        (
            "m",
            r#","cache_salt":"low","nvext":{"cache_salt":"mid"}"#,
            None,
            None,
            (None, Some("mid")),
        ),
        (
            "m",
            r#","cache_salt":"low","nvext":{"cache_salt":""}"#,
            None,
            None,
            (None, Some("low")),
        ),
        (
            "m",
            r#","cache_salt":"low","nvext":{"cache_salt":"mid"}"#,
            Some("high"),
            None,
            (None, Some("high")),
        ),
        ("lora", "", None, None, (Some("lora"), None)),
        ("lora", "", Some("t"), Some("name"), (Some("name"), Some("t"))),
    ] {
        let found = rig
            .ask_with(model, &body(extra), &[plain(16)], salt, adapter)
            .await
            .unwrap();
        let expected = hashing::blocks(&found.tokens, 16, expected.0, expected.1).unwrap();
        assert_eq!(found.hashes, [(plain(16), expected)], "{model} {extra}");
    }
    rig.end().await;
}

#[tokio::test]
async fn most_workers_must_agree_and_those_that_do_not_serve_have_no_say() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = write(one.path(), &small_tokenizer(), SMALL_CONFIG);
    let others = write(two.path(), &small_tokenizer(), &SMALL_CONFIG.replace("<|b|>", ""));
    let rig = Rig::new(settings(&[files[0].1, files[1].1, others[1].1]));
    let mut encoder = worker(3, BASE, Artifacts::default());
    encoder.role = Role::Encode;
    rig.workers(&[worker(1, BASE, artifacts(&files)), encoder.clone()]);
    rig.becomes("m", HELLO).await;
    rig.workers(&[
        worker(1, BASE, artifacts(&files)),
        worker(2, BASE, artifacts(&others)),
    ]);
    rig.becomes("m", Err(Unavailable::Tokenizer)).await;
    rig.workers(&[worker(2, BASE, artifacts(&others))]);
    rig.becomes("m", HELLO.map(|tokens| tokens - 1)).await;
    rig.end().await;
}

/// Cards that are bad or lie, with files that are pinned for another model: the model is scored as before. Token ids
/// are not for those workers.
#[tokio::test]
async fn a_bad_card_costs_its_own_score_and_no_other() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = write(one.path(), &small_tokenizer(), SMALL_CONFIG);
    let others = write(two.path(), &small_tokenizer(), &SMALL_CONFIG.replace("<|b|>", ""));
    let rig = Rig::new(settings(&[files[0].1, files[1].1, others[1].1]));
    let honest = [
        worker(5, BASE, artifacts(&files)),
        worker(6, BASE, artifacts(&files)),
    ];
    rig.workers(&honest);
    rig.becomes("m", HELLO).await;
    let body = r#"{"messages":[{"role":"user","content":"hello there"}]}"#;
    let before = rig.ask("m", body).await.unwrap();
    assert!(before.unanimous);
    let huge = |mut artifacts: Artifacts| {
        artifacts.tokenizer = artifacts
            .tokenizer
            .map(|slot| slot.replace("\"size\":1", "\"size\":18446744073709551615").into());
        artifacts
    };
    let adapter = [("n", NameKind::Base), ("m", NameKind::Adapter)];
    for (bad, unanimous) in [
        (worker(1, &adapter, artifacts(&others)), false),
        (worker(1, &adapter, artifacts(&files)), false),
        (worker(1, BASE, Artifacts::default()), false),
        (worker(1, BASE, artifacts(&others)), false),
        (worker(1, BASE, huge(artifacts(&files))), true),
    ] {
        let rig = Rig::new(rig.settings.borrow().clone());
        rig.workers(&[vec![bad.clone()], honest.to_vec()].concat());
        rig.becomes("m", HELLO).await;
        let found = rig.ask("m", body).await.unwrap();
        let expected = Prepared {
            unanimous,
            ..before.clone()
        };
        assert_eq!(found, expected, "{:?}", bad.names);
        rig.end().await;
    }
    rig.end().await;
}

#[tokio::test]
async fn files_that_are_no_model_cost_their_model_alone() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    std::fs::create_dir(&good).unwrap();
    let files = write(&good, &small_tokenizer(), SMALL_CONFIG);
    let deep = "[".repeat(100_000);
    let huge_id = small_tokenizer().replace("\"id\":129", "\"id\":4294967295");
    assert_ne!(huge_id, small_tokenizer());
    let bomb = r#"{"chat_template": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}x"}"#;
    let broken = [
        ("deep", deep.as_str(), SMALL_CONFIG, Outcome::ParseFailed),
        ("huge-id", &huge_id, SMALL_CONFIG, Outcome::ParseFailed),
        ("not-json", "tokenizer", SMALL_CONFIG, Outcome::ParseFailed),
        (
            "syntax",
            &small_tokenizer(),
            r#"{"chat_template": "{% if %}"}"#,
            Outcome::ParseFailed,
        ),
        (
            "adapted",
            &small_tokenizer(),
            r#"{"chat_template": "<|channel>thought <|tool_call>call: {{ message.get('reasoning') }}"}"#,
            Outcome::Unsupported,
        ),
    ];
    let mut pins = vec![files[0].1, files[1].1];
    let mut workers = vec![worker(1, BASE, artifacts(&files))];
    for (index, (name, tokenizer, config, _)) in broken.iter().enumerate() {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let files = write(&dir, tokenizer, config);
        pins.extend(files.iter().map(|file| file.1));
        workers.push(worker(
            10 + index as u64,
            &[(*name, NameKind::Base)],
            artifacts(&files),
        ));
    }
    let dir = dir.path().join("bomb");
    std::fs::create_dir(&dir).unwrap();
    let files = write(&dir, &small_tokenizer(), bomb);
    pins.extend(files.iter().map(|file| file.1));
    workers.push(worker(99, &[("bomb", NameKind::Base)], artifacts(&files)));
    let rig = Rig::new(settings(&pins));
    rig.workers(&workers);
    rig.becomes("m", HELLO).await;
    // It loads, runs out of fuel, and its prompts are not rendered.
    rig.becomes("bomb", Err(Unavailable::Render)).await;
    rig.counts(Outcome::ParseFailed, 4).await;
    rig.counts(Outcome::Unsupported, 1).await;
    for (name, ..) in &broken {
        rig.becomes(name, Err(Unavailable::Tokenizer)).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn no_more_is_loaded_than_there_is_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path(), &small_tokenizer(), SMALL_CONFIG);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let others = write(&other, &small_tokenizer(), &SMALL_CONFIG.replace("<|b|>", ""));
    let mut one = settings(&[files[0].1, files[1].1, others[1].1]);
    one.max_loaded = 1;
    let rig = Rig::new(one.clone());
    let both = [
        worker(1, BASE, artifacts(&files)),
        worker(2, &[("n", NameKind::Base)], artifacts(&others)),
    ];
    rig.workers(&both);
    rig.becomes("m", HELLO).await;
    rig.becomes("n", Err(Unavailable::Tokenizer)).await;
    rig.counts(Outcome::OverCapacity, 1).await;
    rig.workers(&both[1..]);
    rig.becomes("n", HELLO.map(|tokens| tokens - 1)).await;
    rig.end().await;
}

#[tokio::test]
async fn caps_that_are_lowered_hold_for_what_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path(), &small_tokenizer(), SMALL_CONFIG);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let others = write(&other, &small_tokenizer(), &SMALL_CONFIG.replace("<|b|>", ""));
    let both = settings(&[files[0].1, files[1].1, others[1].1]);
    let rig = Rig::new(both.clone());
    rig.workers(&[
        worker(1, BASE, artifacts(&files)),
        worker(2, &[("n", NameKind::Base)], artifacts(&others)),
    ]);
    let loaded = async |expected: usize| {
        let until = Instant::now() + LONG;
        loop {
            let state = rig.prompts.shared.state.load_full();
            let loaded = state
                .models
                .values()
                .filter(|served| served.model.is_ok())
                .count();
            if loaded == expected {
                return;
            }
            assert!(Instant::now() < until, "{loaded} are loaded, not {expected}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    loaded(2).await;
    let (mut fewer, mut smaller) = (both.clone(), both.clone());
    fewer.max_loaded = 1;
    smaller.max_total_bytes = (small_tokenizer().len() * 3 / 2) as u64;
    for (caps, told) in [(fewer, 1), (smaller, 2)] {
        rig.settings.send_replace(caps);
        loaded(1).await;
        // Told as any other lack of room.
        rig.counts(Outcome::OverCapacity, told).await;
        rig.settings.send_replace(both.clone());
        loaded(2).await;
    }
    rig.end().await;
}

/// Prompts of a slow model are in work for as long as they may be: those of another one are not kept waiting for them.
#[tokio::test]
async fn a_slow_model_leaves_room_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path(), &small_tokenizer(), SMALL_CONFIG);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let others = write(&other, &small_tokenizer(), &SMALL_CONFIG.replace("<|b|>", ""));
    let rig = Rig::new(settings(&[files[0].1, files[1].1, others[1].1]));
    rig.workers(&[
        worker(1, BASE, artifacts(&files)),
        worker(2, &[("slow", NameKind::Base)], artifacts(&others)),
    ]);
    rig.becomes("m", HELLO).await;
    rig.becomes("slow", HELLO.map(|tokens| tokens - 1)).await;
    let slow = {
        let state = rig.prompts.shared.state.load();
        state.models[&ModelName::new("slow")]
            .model
            .clone()
            .unwrap()
            .serial()
    };
    let mut held = Vec::new();
    while let Some(permit) = rig.prompts.shared.permits.take(slow, PERMIT_WAIT).await {
        held.push(permit);
    }
    assert!(held.len() >= PERMITS.0 / 2, "{}", held.len());
    let body = r#"{"messages":[{"role":"user","content":"hello there"}]}"#;
    assert_eq!(rig.ask("slow", body).await, Err(Unavailable::Render));
    for _ in 0..100 {
        assert!(rig.ask("m", body).await.is_ok());
    }
    rig.end().await;
}

/// A worker's metadata server. Answers as long as the test runs.
async fn server(answers: impl Fn(&str) -> Vec<u8> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                request.push(byte);
            }
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            // The peer may have had enough before the end.
            let _unread = stream.write_all(&answers(&path)).await;
        }
    });
    port
}

fn ok(content: &[u8]) -> Vec<u8> {
    [
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len()).as_bytes(),
        content,
    ]
    .concat()
}

#[tokio::test]
async fn files_from_workers_are_kept_and_not_asked_for_again() {
    let tokenizer = small_tokenizer();
    let sums = [
        Checksum::of(tokenizer.as_bytes()),
        Checksum::of(SMALL_CONFIG.as_bytes()),
    ];
    let port = server(move |path| match path {
        "/tokenizer.json" => ok(tokenizer.as_bytes()),
        "/config.json" => ok(SMALL_CONFIG.as_bytes()),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    })
    .await;
    let at = |port: u16| {
        artifacts(&[
            (format!("http://127.0.0.1:{port}/tokenizer.json"), sums[0]),
            (format!("http://127.0.0.1:{port}/config.json"), sums[1]),
        ])
    };
    let dir = tempfile::tempdir().unwrap();
    let mut with_store = settings(&sums);
    with_store.cache_dir = Some(dir.path().to_owned());
    let rig = Rig::new(with_store.clone());
    rig.workers(&[worker(1, BASE, at(port))]);
    rig.becomes("m", HELLO).await;
    rig.end().await;
    for sum in sums {
        assert!(dir.path().join("blobs").join(sum.hex()).is_file());
    }
    // Nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let rig = Rig::new(with_store);
    rig.workers(&[worker(1, BASE, at(free))]);
    rig.becomes("m", HELLO).await;
    rig.end().await;
}

#[tokio::test]
async fn servers_that_lie_redirect_or_send_too_much_are_not_believed() {
    let tokenizer = small_tokenizer();
    let sums = [
        Checksum::of(tokenizer.as_bytes()),
        Checksum::of(SMALL_CONFIG.as_bytes()),
    ];
    let port = server(move |path| match path {
        "/good" => ok(tokenizer.as_bytes()),
        "/config" => ok(SMALL_CONFIG.as_bytes()),
        "/wrong" => ok(b"something else"),
        "/redirect" => b"HTTP/1.1 302 Found\r\nlocation: /good\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/declared" => b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec(),
        "/endless" => [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 200_000]].concat(),
        _ => b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec(),
    })
    .await;
    for (path, outcome) in [
        ("wrong", Outcome::ChecksumMismatch),
        ("redirect", Outcome::FetchFailed),
        ("declared", Outcome::TooLarge),
        ("endless", Outcome::TooLarge),
        ("missing", Outcome::FetchFailed),
    ] {
        let mut capped = settings(&sums);
        capped.rules.cap = 100_000;
        let rig = Rig::new(capped);
        let address = |path: &str| format!("http://127.0.0.1:{port}/{path}");
        let files = [(address(path), sums[0]), (address("config"), sums[1])];
        rig.workers(&[worker(1, BASE, artifacts(&files))]);
        rig.counts(outcome, 1).await;
        // The same content from a worker that tells the truth.
        let good = [(address("good"), sums[0]), (address("config"), sums[1])];
        let rig2 = Rig::new(rig.settings.borrow().clone());
        rig2.workers(&[
            worker(1, BASE, artifacts(&files)),
            worker(2, BASE, artifacts(&good)),
        ]);
        rig2.becomes("m", HELLO).await;
        rig.end().await;
        rig2.end().await;
    }
    // As many that lie as are asked at a time: the next try asks others.
    let files = [
        (format!("http://127.0.0.1:{port}/wrong"), sums[0]),
        (format!("http://127.0.0.1:{port}/config"), sums[1]),
    ];
    let good = [
        (format!("http://127.0.0.1:{port}/good"), sums[0]),
        (format!("http://127.0.0.1:{port}/config"), sums[1]),
    ];
    let lie = |id: u64| {
        let mut files = files.clone();
        files[0].0 += &format!("?{id}");
        worker(id, BASE, artifacts(&files))
    };
    let rig = Rig::new(settings(&sums));
    rig.workers(&[
        lie(1),
        lie(2),
        lie(3),
        lie(4),
        worker(5, BASE, artifacts(&good)),
        worker(6, BASE, artifacts(&good)),
    ]);
    rig.counts(Outcome::FetchFailed, 1).await;
    // Other settings are a reason to try again.
    let mut other = settings(&sums);
    other.max_tokens -= 1;
    rig.settings.send_replace(other);
    rig.becomes("m", HELLO).await;
    rig.end().await;
    let mut closed = settings(&sums);
    closed.rules.http = false;
    let rig = Rig::new(closed);
    let files = [
        (format!("http://127.0.0.1:{port}/good"), sums[0]),
        (format!("http://127.0.0.1:{port}/config"), sums[1]),
    ];
    rig.workers(&[worker(1, BASE, artifacts(&files))]);
    rig.counts(Outcome::Disabled, 1).await;
    rig.end().await;
}

#[tokio::test]
async fn bodies_that_are_too_long_or_of_another_form_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path(), &small_tokenizer(), SMALL_CONFIG);
    let mut capped = settings(&[files[0].1, files[1].1]);
    capped.max_tokens = 1000;
    capped.max_text_bytes = 2000;
    let rig = Rig::new(capped);
    rig.workers(&[worker(1, BASE, artifacts(&files))]);
    rig.becomes("m", HELLO).await;
    let body = |content: &str| json!({"messages": [{"role": "user", "content": content}]}).to_string();
    for (body, expected) in [
        (body(&"x".repeat(1001)), Unavailable::TooLarge),
        (body(&"x".repeat(2001)), Unavailable::TooLarge),
        (body(&"x".repeat(MAX_BODY_BYTES)), Unavailable::TooLarge),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#
                .to_owned(),
            Unavailable::Unsupported,
        ),
        ("{}".to_owned(), Unavailable::Unsupported),
        ("[".repeat(1000), Unavailable::Unsupported),
    ] {
        assert_eq!(rig.ask("m", &body).await, Err(expected), "{}", body.len());
    }
    assert_eq!(rig.ask("unknown", &body("x")).await, Err(Unavailable::Tokenizer));
    rig.end().await;
}
