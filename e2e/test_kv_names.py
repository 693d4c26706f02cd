"""Adapters and salts: a prompt's blocks are other blocks under another adapter or salt, for the workers and for the router alike."""

import json
import os

import httpx
import pytest

from peers import fleet as fleets
from peers.ask import ask, chat, check_single, completion
from peers.fleet import MODEL
from peers.process import eventually
from test_kv_aware import explain, pins, results

ADAPTER = "my-lora/v1"
BLOCK = 16


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = fleets.Fleet(version, folder / "fleet")
    for _ in range(3):
        found.start_bindings_worker(adapters=[ADAPTER])
    found.start_frontend("--enable-anthropic-api")
    yield found.settle()
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    return started(fleet, module_router)


def started(fleet, start):
    found = pins(fleet, fleet.folder)

    def change(config):
        config["dynamo"].update(kv={"enabled": True, "pinned_artifacts": found})
        config["backends"][0]["models"].append(ADAPTER)

    router = start(fleet, change=change)

    def scored():
        assert ask(router.url, chat(os.urandom(8).hex())).ok
        return results(router, "overlap", "no_overlap") > 0

    eventually(scored, 30, "prompts are scored")
    return router


def stored(router):
    return router.metric("continuum_dynamo_kv_events_total", result="stored")


def told(router, body, path="/v1/chat/completions"):
    """Sends a request whose blocks are new to the fleet; the worker that has them now, once the router knows of them."""
    before = stored(router)
    answer = ask(router.url, body, path=path)
    worker = check_single(answer)
    eventually(lambda: stored(router) > before, 10, "the blocks are in the index")
    return worker, answer.body["usage"]["prompt_tokens"]


def held(router, body):
    """Device blocks of the prompt that each worker holds, as the router sees it."""
    shown = explain(router, body)
    assert shown["outcome"] == "chosen", shown
    return {int(row["worker_id"]): row["prompt"]["device_blocks"] for row in shown["candidates"]}


def question():
    return f"{os.urandom(6).hex()}: " + "the quick brown fox jumps over the lazy dog. " * 10


def salted(words, where, salt, **more):
    if where == "nvext":
        return chat(words, nvext={"cache_salt": salt}, **more)
    return chat(words, cache_salt=salt, **more)


def asked(fleet, worker):
    """What the worker was asked last, as it saw it."""
    lines = [line for line in fleet.by_instance(worker).process.text().splitlines() if line.startswith("asked ")]
    return json.loads(lines[-1].removeprefix("asked "))


@pytest.mark.parametrize("where", ["nvext", "body"])
def test_a_salt_is_part_of_a_blocks_name(router, fleet, where):
    words = question()
    worker, tokens = told(router, salted(words, where, "tenant-a"))
    assert asked(fleet, worker)["salt"] == "tenant-a"
    full = tokens // BLOCK
    assert full > 5
    # Every full block under the same salt, and none under another one or without one.
    assert held(router, salted(words, where, "tenant-a")) == {w.instance: full if w.instance == worker else 0 for w in fleet.workers}
    for other in [chat(words), salted(words, where, "tenant-b")]:
        assert set(held(router, other).values()) == {0}
    for _ in range(3):
        assert check_single(ask(router.url, salted(words, where, "tenant-a", stream=True))) == worker


@pytest.mark.parametrize("fields", [
    {"nvext": {"cache_salt": " padded "}},
    {"nvext": {"cache_salt": ""}, "cache_salt": "low"},
    {"nvext": {"cache_salt": "high"}, "cache_salt": "low"},
    {"nvext": {"cache_salt": ""}},
    {"cache_salt": "  "},
    {"cache_salt": "\ud14c\ub10c\ud2b8"},
], ids=str)
def test_the_router_reads_the_salt_that_the_frontend_reads(router, fleet, fields):
    body = chat(question(), **json.loads(json.dumps(fields)))
    worker, tokens = told(router, body)
    assert held(router, body)[worker] == tokens // BLOCK, asked(fleet, worker)


def test_a_clients_tenant_header_does_not_reach_the_workers(router, fleet):
    words = question()
    header = {"x-backend": "", "x-tenant-id": "tenant-h"}
    before = stored(router)
    worker = check_single(ask(router.url, salted(words, "nvext", "tenant-b"), header))
    assert asked(fleet, worker)["salt"] == "tenant-b"
    eventually(lambda: stored(router) > before, 10, "the blocks are in the index")
    assert held(router, salted(words, "nvext", "tenant-b"))[worker] > 5


# Frontends of 1.4.2 do not serve adapters.
@pytest.mark.versions("1.5.1", "1.6.1")
@pytest.mark.parametrize("salt", [None, "tenant-a"])
def test_an_adapter_is_part_of_a_blocks_name(router, fleet, salt):
    words = question()
    more = {"cache_salt": salt} if salt else {}
    body = chat(words, model=ADAPTER, **more)
    worker, tokens = told(router, body)
    assert asked(fleet, worker) == {"tokens": tokens, "adapter": ADAPTER, "salt": salt}
    full = tokens // BLOCK
    assert held(router, body) == {w.instance: full if w.instance == worker else 0 for w in fleet.workers}
    # The same prompt to the base model, or under another salt, is another one.
    assert set(held(router, chat(words, model=MODEL, **more)).values()) == {0}
    assert set(held(router, chat(words, model=ADAPTER, cache_salt="tenant-b")).values()) == {0}
    overlap = results(router, "overlap")
    for turn in range(3):
        answer = ask(router.url, chat(words + f" And then {turn}?", model=ADAPTER, **more))
        assert check_single(answer) == worker
    assert results(router, "overlap") == overlap + 3


def test_the_base_models_blocks_are_its_own(router, fleet):
    words = question()
    body = completion(words)
    worker, tokens = told(router, body, "/v1/completions")
    assert asked(fleet, worker) == {"tokens": tokens, "adapter": None, "salt": None}
    assert held(router, body)[worker] == tokens // BLOCK
    listed = {model["id"] for model in httpx.get(f"{fleet.frontends[0].url}/v1/models", timeout=5).json()["data"]}
    if ADAPTER in listed:
        assert set(held(router, completion(words, model=ADAPTER)).values()) == {0}


def test_explain_says_why_blocks_do_not_count(router):
    assert explain(router, chat(question()))["unscored"] is None
    picture = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]
    assert explain(router, chat(messages=[{"role": "user", "content": picture}]))["unscored"] == "unsupported_prompt"
    assert explain(router, {"model": MODEL, "input": "hello"})["unscored"] == "unscored_route"
    assert all(worker["kv_unscored"] is None for worker in router.workers()["workers"])


def test_nothing_was_misunderstood(router):
    bad = ("gap", "missing_parent", "unknown_block", "invalid_sequence", "unscored_worker", "unsupported_domain", "foreign", "malformed",
           "identity_mismatch", "over_capacity")
    found = {result: router.metric("continuum_dynamo_kv_events_total", result=result) for result in bad}
    assert not any(found.values()), found
    assert results(router, "render_unavailable", "prompt_too_large", "artifact_unpinned") == 0


def test_a_speculative_head_makes_the_next_token_part_of_a_blocks_name(version, folder, routers):
    """Two workers with one, one without: the same prompt has other blocks, and each is credited with its own."""
    fleet = fleets.Fleet(version, folder / "speculative")
    try:
        for eagle in (True, True, False):
            fleet.start_bindings_worker(eagle=eagle)
        fleet.start_frontend()
        fleet.settle()
        router = started(fleet, routers)
        plain = fleet.workers[2].instance
        seen = set()
        for number in range(12):
            salt = f"tenant-{number % 2}"
            body = salted(question(), "body", salt)
            worker, tokens = told(router, body)
            seen.add(worker == plain)
            # The last token has none after it.
            full = tokens // BLOCK if worker == plain else (tokens - 1) // BLOCK
            assert held(router, body) == {w.instance: full if w.instance == worker else 0 for w in fleet.workers}
            assert check_single(ask(router.url, body)) == worker
            if number > 3 and len(seen) == 2:
                break
        assert seen == {True, False}
        assert router.metric("continuum_dynamo_kv_events_total", result="unscored_worker") == 0
    finally:
        fleet.stop()


SYSTEM = "You answer in one word. "
DIALECTS = {
    "responses": ("/v1/responses", lambda words: {"input": words, "instructions": SYSTEM * 8, "max_output_tokens": 2}),
    "responses-turns": ("/v1/responses", lambda words: {
        "input": [{"role": "user", "content": words}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}],
        "instructions": SYSTEM * 8, "max_output_tokens": 2}),
    "messages": ("/v1/messages", lambda words: {
        "system": SYSTEM * 8, "messages": [{"role": "user", "content": words}], "max_tokens": 2}),
    "messages-turns": ("/v1/messages", lambda words: {
        "system": SYSTEM * 8, "max_tokens": 2,
        "messages": [{"role": "user", "content": words}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]}),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_other_dialects_are_chats_to_the_workers_and_are_not_scored_here(router, fleet, dialect):
    """The router pins no other dialect, so it scores none. A frontend makes the chat of it that one would expect."""
    path, body = DIALECTS[dialect]
    words, worker, before = question(), fleet.workers[0].instance, stored(router)
    body = {"model": MODEL} | body(words)
    pinned = {"x-dynamo-worker-instance-id": str(worker)}
    answer = httpx.post(f"{fleet.frontends[0].url}{path}", json=body, headers=pinned, timeout=30)
    assert answer.status_code == 200, answer.text
    eventually(lambda: stored(router) > before, 10, "the blocks are in the index")
    messages = [{"role": "system", "content": SYSTEM * 8}, {"role": "user", "content": words}]
    if dialect.endswith("turns"):
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
    equal = held(router, chat(messages=messages))[worker]
    assert equal == asked(fleet, worker)["tokens"] // BLOCK, (equal, asked(fleet, worker))
    scored_before = results(router, "overlap", "no_overlap")
    relayed = httpx.post(f"{router.url}{path}", json=body, timeout=30)
    assert relayed.status_code in (404, 503), relayed.text
    assert results(router, "overlap", "no_overlap") == scored_before
