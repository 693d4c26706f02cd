//! OpenAI-shaped answers, buffered and streamed.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response,
    body::Frame,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Body, Pair};
use crate::{
    Fleet,
    worker::{Occupied, Worker},
};

/// Chunks that may wait between the generator and a slow client.
const STREAM_QUEUE: usize = 16;
/// Tokens of an answer when the request does not say.
const DEFAULT_TOKENS: u32 = 16;
const WORDS: [&str; 8] = [
    "The ",
    "fleet ",
    "answers ",
    "from ",
    "the ",
    "pinned ",
    "workers, ",
    "always. ",
];

/// Which API was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
}

/// What the simulated engine reads of a request.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    pub(super) model: String,
    #[serde(default)]
    stream: bool,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    #[serde(default)]
    messages: Value,
    #[serde(default)]
    prompt: Value,
    #[serde(default)]
    nvext: Nvext,
}

#[derive(Debug, Default, Deserialize)]
struct Nvext {
    #[serde(default)]
    extra_fields: Vec<String>,
}

impl Asked {
    /// Four bytes a token: near enough for load.
    pub(super) fn prompt_tokens(&self) -> u64 {
        let bytes = self.messages.to_string().len() + self.prompt.to_string().len();
        u64::try_from(bytes / 4).unwrap_or(u64::MAX).max(1)
    }
}

/// Everything that an answer repeats in each chunk.
pub(super) struct Writer {
    kind: Kind,
    asked: Asked,
    id: String,
    created: u64,
    prompt_tokens: u64,
    worker_id: Option<Value>,
}

impl Writer {
    pub(super) fn new(kind: Kind, asked: Asked, pair: &Pair, prompt_tokens: u64) -> Self {
        let tell = asked.nvext.extra_fields.iter().any(|field| field == "worker_id");
        let (decode, rank) = (&pair.decode.0, pair.decode.1);
        let (prefill, prefill_rank) = pair.prefill.as_ref().map_or((decode, rank), |(w, r)| (w, *r));
        let worker_id = tell.then(|| {
            json!({
                "prefill_worker_id": prefill.instance, "prefill_dp_rank": prefill_rank,
                "decode_worker_id": decode.instance, "decode_dp_rank": rank,
            })
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            id: format!("{prefix}-{:x}-{}", now.as_nanos(), decode.served()),
            created: now.as_secs(),
            kind,
            asked,
            prompt_tokens,
            worker_id,
        }
    }

    pub(super) fn streams(&self) -> bool {
        self.asked.stream
    }

    pub(super) fn tokens(&self) -> u32 {
        self.asked
            .max_completion_tokens
            .or(self.asked.max_tokens)
            .unwrap_or(DEFAULT_TOKENS)
            .max(1)
    }

    pub(super) fn whole(&self) -> Value {
        let text: String = WORDS
            .iter()
            .cycle()
            .take(self.tokens() as usize)
            .copied()
            .collect();
        let choice = match self.kind {
            Kind::Chat => {
                json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"})
            }
            Kind::Completion => json!({"index": 0, "text": text, "finish_reason": "length"}),
        };
        let usage = json!({
            "prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens(),
            "total_tokens": self.prompt_tokens + u64::from(self.tokens()),
        });
        let object = if self.kind == Kind::Chat {
            "chat.completion"
        } else {
            "text_completion"
        };
        let mut answer = self.envelope(object, choice);
        if let Some(map) = answer.as_object_mut() {
            map.insert("usage".to_owned(), usage);
        }
        answer
    }

    fn chunk(&self, index: u32) -> Value {
        let text = WORDS
            .get(index as usize % WORDS.len())
            .copied()
            .unwrap_or_default();
        let last = index + 1 == self.tokens();
        let finish = if last { json!("length") } else { Value::Null };
        match self.kind {
            Kind::Chat => self.envelope(
                "chat.completion.chunk",
                json!({"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}),
            ),
            Kind::Completion => self.envelope(
                "text_completion",
                json!({"index": 0, "text": text, "finish_reason": finish}),
            ),
        }
    }

    fn envelope(&self, object: &str, choice: Value) -> Value {
        let mut answer = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.asked.model, "choices": [choice],
        });
        if let (Some(map), Some(worker_id)) = (answer.as_object_mut(), &self.worker_id) {
            map.insert("nvext".to_owned(), json!({"worker_id": worker_id}));
        }
        answer
    }
}

/// Streams one token per `pace` and ends with `[DONE]`; a killed worker ends it with an error event, as a real
/// frontend does. A client that leaves frees the worker at the next token.
pub(super) fn stream(writer: Writer, worker: Arc<Worker>, busy: Occupied, pace: Duration) -> Response<Body> {
    let (to_client, chunks) = mpsc::channel(STREAM_QUEUE);
    tokio::spawn(async move {
        let _busy = busy;
        for index in 0..writer.tokens() {
            tokio::time::sleep(pace).await;
            let event = if worker.is_alive() {
                writer.chunk(index)
            } else {
                json!({"error": {"message": "Service temporarily unavailable", "type": "service_unavailable", "code": 503}})
            };
            if send(&to_client, &event.to_string()).await.is_err() {
                return;
            }
            if !worker.is_alive() {
                break;
            }
        }
        let _gone = send(&to_client, "[DONE]").await;
    });
    let mut response = Response::new(StreamBody::new(ReceiverStream::new(chunks)).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

type Chunk = Result<Frame<Bytes>, std::convert::Infallible>;

async fn send(to: &mpsc::Sender<Chunk>, data: &str) -> Result<(), mpsc::error::SendError<Chunk>> {
    to.send(Ok(Frame::data(Bytes::from(format!("data: {data}\n\n")))))
        .await
}

/// `GET /v1/models`: names whose workers can serve.
pub(super) fn models(fleet: &Fleet) -> Value {
    let names: BTreeSet<String> = fleet.workers().iter().map(|w| w.model.clone()).collect();
    let data: Vec<Value> = names
        .iter()
        .map(|name| json!({"id": name, "object": "model", "created": 0, "owned_by": "nvidia"}))
        .collect();
    json!({"object": "list", "data": data})
}

/// `GET /health`: always healthy, with the instances that the frontend sees.
pub(super) fn health(fleet: &Fleet) -> Value {
    let instances: Vec<Value> = fleet
        .workers()
        .iter()
        .map(|w| {
            json!({"component": w.component, "endpoint": "generate", "namespace": w.namespace, "instance_id": w.instance})
        })
        .collect();
    json!({"status": "healthy", "instances": instances})
}
