"""The client side: requests as an application sends them, and answers with what a test wants to know of them."""

import json
import threading
import time
from dataclasses import dataclass, field

import httpx

from .fleet import MODEL

TIMEOUT_SECONDS = 90
SHOW_BACKEND = {"x-backend": ""}
"""The header that makes the router tell which workers it chose; an empty one counts."""


@dataclass
class Answer:
    status: int
    headers: httpx.Headers
    text: str
    body: dict = None
    events: list = field(default_factory=list)
    done: bool = False
    broken: str = None
    seconds: float = 0.0

    @property
    def error(self):
        """The error of an answer, whichever of the usual shapes it has."""
        found = self.body or {}
        return found.get("error", found)

    @property
    def event_errors(self):
        return [event for event in self.events if "error" in event]

    @property
    def ok(self):
        return self.status == 200 and not self.broken and not self.event_errors and (self.done if self.events else True)

    @property
    def content(self):
        parts = []
        for piece in self.events or [self.body]:
            for choice in piece.get("choices", []):
                message = choice.get("delta") or choice.get("message") or {}
                parts.append(message.get("content") or choice.get("text") or "")
        return "".join(parts)

    @property
    def used(self):
        """(prefill instance, prefill rank, decode instance, decode rank) as the frontend tells; ranks may be None."""
        for piece in [*self.events, self.body or {}]:
            told = (piece.get("nvext") or {}).get("worker_id")
            if told:
                return (
                    told.get("prefill_worker_id"), told.get("prefill_dp_rank"),
                    told.get("decode_worker_id"), told.get("decode_dp_rank"),
                )
        raise AssertionError(f"the answer does not name its workers: {self.text[:500]}")

    def pinned(self, which):
        """(namespace, instance, rank) of an x-continuum-<which>-worker header; None when it is absent."""
        value = self.headers.get(f"x-continuum-{which}-worker")
        if value is None:
            return None
        namespace, _, worker = value.rpartition("/")
        instance, _, rank = worker.partition("@")
        return namespace, int(instance), int(rank) if rank else None


def chat(words="hello there", **fields):
    """A chat body that asks the frontend to name its workers. `nvext` fields are added to that wish."""
    nvext = {"extra_fields": ["worker_id"]} | fields.pop("nvext", {})
    return {"model": MODEL, "messages": [{"role": "user", "content": words}], "max_tokens": 4, "nvext": nvext} | fields


def completion(words="hello there", **fields):
    nvext = {"extra_fields": ["worker_id"]} | fields.pop("nvext", {})
    return {"model": MODEL, "prompt": words, "max_tokens": 4, "nvext": nvext} | fields


def ask(url, body, headers=SHOW_BACKEND, path="/v1/chat/completions", client=None):
    """Sends one request and reads the answer to its end, streamed or not. Never raises for what the server does: see `Answer.broken`."""
    begun = time.monotonic()
    sender = client or httpx
    try:
        if not body.get("stream"):
            raw = sender.post(f"{url}{path}", json=body, headers=headers, timeout=TIMEOUT_SECONDS)
            return Answer(raw.status_code, raw.headers, raw.text, _parsed(raw.text), seconds=time.monotonic() - begun)
        with sender.stream("POST", f"{url}{path}", json=body, headers=headers, timeout=TIMEOUT_SECONDS) as raw:
            answer = Answer(raw.status_code, raw.headers, "")
            try:
                for chunk in raw.iter_text():
                    answer.text += chunk
            except httpx.HTTPError as error:
                answer.broken = repr(error)
    except httpx.HTTPError as error:
        return Answer(0, httpx.Headers(), "", broken=repr(error), seconds=time.monotonic() - begun)
    answer.seconds = time.monotonic() - begun
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        for line in answer.text.splitlines():
            if line == "data: [DONE]":
                answer.done = True
            elif line.startswith("data: "):
                answer.events.append(json.loads(line[6:]))
    else:
        answer.body = _parsed(answer.text)
    return answer


def _parsed(text):
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def check_pair(answer, namespace="dynamo"):
    """The answer came from exactly the prefill and the decode worker (and the ranks) that the router says it pinned."""
    assert answer.ok, (answer.status, answer.broken, answer.text[-500:])
    assert answer.headers.get("x-continuum-routing-path") == "disaggregated", answer.headers
    prefill, decode = answer.pinned("prefill"), answer.pinned("decode")
    assert prefill and decode, answer.headers
    assert prefill[0] == decode[0] and decode[0].startswith(namespace), answer.headers
    used = answer.used
    assert (prefill[1], decode[1]) == (used[0], used[2]), (answer.headers, used)
    # The frontend tells ranks only when they were pinned.
    assert (prefill[2], decode[2]) == (used[1], used[3]), (answer.headers, used)
    return prefill[1], decode[1]


def check_single(answer, namespace="dynamo"):
    """The answer came from exactly the aggregated worker that the router says it pinned."""
    assert answer.ok, (answer.status, answer.broken, answer.text[-500:])
    assert answer.pinned("prefill") is None, answer.headers
    decode = answer.pinned("decode")
    assert decode and decode[0].startswith(namespace), answer.headers
    assert answer.used[2] == decode[1], (answer.headers, answer.used)
    return decode[1]


class Traffic:
    """Sends requests from several threads until it is stopped, and keeps every answer with the time at which it was asked."""

    def __init__(self, url, make_body, threads=4, headers=SHOW_BACKEND):
        self.answers = []
        self._stop = threading.Event()
        self._url, self._make, self._headers = url, make_body, headers
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        count = 0
        with httpx.Client() as client:
            while not self._stop.is_set():
                asked = time.monotonic()
                answer = ask(self._url, self._make(number, count), self._headers, client=client)
                self.answers.append((asked, answer))
                count += 1

    def wait_for(self, answers, seconds=60):
        """Waits until so many more answers are there."""
        goal, deadline = len(self.answers) + answers, time.monotonic() + seconds
        while len(self.answers) < goal:
            assert time.monotonic() < deadline, f"only {len(self.answers)} of {goal} answers"
            time.sleep(0.02)

    def stop(self):
        """Ends the traffic and returns the answers, oldest first."""
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS + 10)
            assert not thread.is_alive(), "a request hangs"
        return [answer for _, answer in sorted(self.answers, key=lambda pair: pair[0])]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
