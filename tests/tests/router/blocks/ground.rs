//! Fleets whose workers publish what they hold: their files, their block events, and how prompts are asked before them.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use continuum_fleet_sim::{
    Identity, Pace, Role, Settings, Sim, Worker,
    records::{self, Record},
};
use continuum_prompt::{artifact::Checksum, hashing};
use continuum_testkit::loopback::Loopback;
use continuum_wire::{
    envelope,
    router_event::{Block, Data, Domain, RouterEvent, Stored, Tier},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, MODEL, PATIENCE, Router, ask};

pub(super) const KV_EVENTS: &str = "kv-events";
pub(super) const BLOCK_SIZE: u32 = 16;

/// One token for a letter, so that tests can tell the tokens of a prompt without the router.
pub(super) fn tokenizer() -> String {
    let vocab: serde_json::Map<_, _> = (0_u8..128)
        .map(|byte| (char::from(byte).to_string(), json!(byte)))
        .collect();
    let special = |id: u8, text: &str| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "pre_tokenizer": null, "decoder": null, "added_tokens": [special(128, "<|a|>"), special(129, "<|b|>")],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    })
    .to_string()
}

pub(super) const TEMPLATE: &str =
    r#"{"chat_template": "{% for m in messages %}<|a|>{{ m.role }}:{{ m.content }}<|b|>{% endfor %}"}"#;

/// Loops for longer than a rendering may take.
pub(super) const TEMPLATE_BOMB: &str = r#"{"chat_template": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}x"}"#;

pub(super) fn body(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": text}]})
}

/// As long as so many blocks, all different.
pub(super) fn text(blocks: usize) -> String {
    (0..blocks).map(|n| format!("{n:15} ")).collect()
}

/// What a worker publishes for a chat of one message.
pub(super) fn chain(text: &str, salt: Option<&str>) -> Vec<Block> {
    let letters = format!("user:{text}");
    let tokens: Vec<u32> = std::iter::once(128)
        .chain(letters.bytes().map(u32::from))
        .chain([129])
        .collect();
    let hashes = hashing::blocks(&tokens, BLOCK_SIZE, None, salt).unwrap();
    hashes.into_iter().map(|hash| block(hash ^ 1, hash)).collect()
}

pub(super) const fn block(hash: u64, tokens: u64) -> Block {
    Block {
        hash,
        tokens,
        multimodal: false,
    }
}

pub(super) const fn stored(parent: Option<u64>, blocks: Vec<Block>) -> Data {
    Data::Stored(Stored { parent, blocks })
}

pub(super) fn names(blocks: &[Block]) -> Data {
    Data::Removed(blocks.iter().map(|block| block.hash).collect())
}

/// A simulated fleet, what its workers offer, and what they publish.
pub(super) struct Ground {
    pub(super) sim: Sim,
    pub(super) store: TempDir,
    pub(super) files: TempDir,
    pub(super) pins: BTreeSet<String>,
}

impl Ground {
    /// Workers that serve alone.
    pub(super) async fn new(workers: u32, frontends: usize) -> Self {
        Self::of([0, 0, workers], frontends, Duration::from_millis(1)).await
    }

    /// So many prefill, decode and aggregated workers, who take so long for each token.
    pub(super) async fn of(workers: [u32; 3], frontends: usize, token: Duration) -> Self {
        let store = tempfile::tempdir().unwrap();
        let [prefill, decode, aggregated] = workers;
        let sim = Sim::start(Settings {
            namespace: "dynamo".to_owned(),
            model: MODEL.to_owned(),
            prefill,
            decode,
            aggregated,
            ranks: 1,
            store: store.path().to_owned(),
            frontends: vec![([127, 0, 0, 1], 0).into(); frontends],
            pace: Pace {
                prefill_tokens_per_second: 1_000_000,
                token,
            },
        })
        .await
        .unwrap();
        let mut ground = Self {
            sim,
            store,
            files: tempfile::tempdir().unwrap(),
            pins: BTreeSet::new(),
        };
        for worker in ground.workers() {
            ground.offer(&worker, &tokenizer(), TEMPLATE);
        }
        ground
    }

    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.sim.fleet().workers()
    }

    /// One more worker, of a model of its own.
    pub(super) async fn join(&mut self, model: &str, instance: u64, tokenizer: &str, template: &str) {
        let who = Identity {
            namespace: "dynamo".to_owned(),
            model: model.to_owned(),
            role: Role::Aggregated,
            instance,
            ranks: 1,
        };
        let worker = self.sim.join(who).await.unwrap();
        self.offer(&worker, tokenizer, template);
    }

    /// Writes files of a worker, names them in its card, and pins them.
    pub(super) fn offer(&mut self, worker: &Worker, tokenizer: &str, template: &str) {
        let folder = self.files.path().join(worker.instance.to_string());
        fs::create_dir_all(&folder).unwrap();
        let mut file = |name: &str, content: &str| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            let checksum = Checksum::of(content.as_bytes()).to_string();
            self.pins.insert(checksum.clone());
            json!({"path": path, "checksum": checksum, "size": content.len()})
        };
        let tokenizer = json!({"hf_tokenizer_json": file("tokenizer.json", tokenizer)});
        let template = json!({"hf_tokenizer_config_json": file("tokenizer_config.json", template)});
        let mut record = records::of_worker(worker).remove(0);
        assert_eq!(record.bucket, "v1/mdc");
        record.value["card_json"]["tokenizer"] = tokenizer;
        record.value["card_json"]["prompt_formatter"] = template;
        self.put(&record);
    }

    /// Registers the block events of a worker, with the record that says whose they are.
    pub(super) async fn teller(&self, worker: &Worker) -> Teller {
        let socket = Loopback::bind_events(worker.instance & 0xffff).await;
        let id = worker.instance & 0xffff;
        let component = &worker.component;
        let place = json!({"namespace": "dynamo", "component": component, "name": "generate"});
        let scope = json!({"kind": "endpoint", "endpoint": place});
        let key =
            format!("namespace/dynamo/component/{component}/endpoint/generate/topic/{KV_EVENTS}/{id:x}");
        let source = json!({
            "type": "EventSource", "scope": scope, "topic": KV_EVENTS, "publisher_id": id,
            "metadata": {"kv_state_endpoint": place, "publisher_id": id,
                "worker": {"worker_id": worker.instance, "dp_rank": 0}},
        });
        let channel = json!({
            "type": "EventChannel", "scope": scope, "topic": KV_EVENTS, "instance_id": id,
            "transport": {"kind": "Zmq", "config": {"endpoint": socket.endpoint}},
        });
        let records = [("v1/event_sources", source), ("v1/event_channels", channel)];
        let files = records.map(|(bucket, value)| {
            self.put(&Record {
                bucket,
                key: key.clone(),
                value,
            })
        });
        // Alive as long as the test.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(2)).await;
                for file in &files {
                    let Ok(file) = fs::File::options().append(true).open(file) else {
                        return;
                    };
                    file.set_modified(SystemTime::now()).unwrap();
                }
            }
        });
        Teller {
            socket,
            worker: worker.instance,
            events: 0,
        }
    }

    pub(super) fn put(&self, record: &Record) -> PathBuf {
        let folder = self.store.path().join(record.bucket);
        let path = folder.join(records::file_name(&record.key));
        fs::create_dir_all(folder).unwrap();
        let fresh = self.store.path().join("fresh");
        fs::write(&fresh, record.value.to_string()).unwrap();
        fs::rename(fresh, &path).unwrap();
        path
    }

    pub(super) fn kv(&self, limits: &str) -> String {
        let pins = json!(self.pins);
        format!("  kv: {{enabled: true, limits: {{{limits}}}, pinned_artifacts: {pins}}}\n")
    }
}

/// The block events of a worker.
pub(super) struct Teller {
    pub(super) socket: Loopback,
    pub(super) worker: u64,
    pub(super) events: u64,
}

impl Teller {
    /// Says it of its own rank, again and again, until the router shows that it was heard.
    pub(super) async fn first(&mut self, router: &Router, data: Data) {
        let heard = || counted(router, "stored");
        let before = heard();
        self.events = 1;
        let begun = tokio::time::Instant::now();
        while heard() == before {
            assert!(begun.elapsed() < PATIENCE, "nobody listens");
            self.socket
                .publish_events(&[event(self.worker, 0, 1, data.clone())])
                .await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Says it of its own rank.
    pub(super) async fn tell(&mut self, data: Data) {
        self.events += 1;
        self.socket
            .publish_events(&[event(self.worker, 0, self.events, data)])
            .await;
    }

    /// Says anything, in an envelope like this.
    pub(super) async fn send(&mut self, topic: &str, publisher: u64, payload: &[u8]) {
        let (id, sequence) = (
            continuum_fleet::ids::PublisherId::new(publisher),
            self.socket.sequence,
        );
        let frames = envelope::encode(KV_EVENTS.as_bytes(), topic, id, sequence, 0, payload);
        self.socket.sequence += 1;
        self.socket.send(&frames).await;
    }
}

pub(super) const fn event(worker_id: u64, rank: u32, event_id: u64, data: Data) -> RouterEvent {
    RouterEvent {
        worker_id,
        tier: Tier::Device,
        domain: Domain::Worker,
        event_id,
        rank,
        data,
    }
}

pub(super) fn counted(router: &Router, result: &str) -> f64 {
    router.metric("continuum_dynamo_kv_events_total", &[("result", result)])
}

pub(super) fn selected(router: &Router, result: &str) -> f64 {
    router.metric("continuum_dynamo_kv_selection_total", &[("result", result)])
}

/// The answer to a prompt that was scored and found in a cache. A busy machine may have no time to render it; then it is
/// asked again.
pub(super) async fn scored(
    router: &Router,
    request: impl Fn() -> http::request::Builder,
    body: &Value,
) -> Answer {
    let begun = tokio::time::Instant::now();
    loop {
        let [overlap, none] = ["overlap", "no_overlap"].map(|result| selected(router, result));
        let answer = ask(router.clients(), request(), body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if selected(router, "overlap") > overlap {
            return answer;
        }
        assert_eq!(selected(router, "no_overlap"), none, "nobody holds any of it");
        assert!(begun.elapsed() < PATIENCE, "not scored");
    }
}

/// Blocks of the prompt in memory of each worker, by instance; `None` where only load counts.
pub(super) async fn held(router: &Router, body: &Value) -> Vec<Option<u64>> {
    let request = http::Request::post("/admin/dynamo/explain");
    let shown = ask(router.operators(), request, body.to_string()).await.json();
    let mut rows: Vec<(u64, Option<u64>)> = shown["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let instance = row["worker_id"].as_str().unwrap().parse().unwrap();
            (instance, row["prompt"]["device_blocks"].as_u64())
        })
        .collect();
    rows.sort_unstable();
    rows.into_iter().map(|(_, held)| held).collect()
}

pub(super) async fn until_held(router: &Router, body: &Value, expected: &[Option<u64>]) {
    let begun = tokio::time::Instant::now();
    loop {
        let found = held(router, body).await;
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
