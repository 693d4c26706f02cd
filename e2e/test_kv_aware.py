"""Selection by the prompt's blocks, in front of real workers and frontends: a conversation goes where its beginning lies."""

import json
import os
import re
import subprocess

import httpx
import pytest

from peers import fleet as fleets
from peers.ask import ask, chat, check_pair, check_single, completion
from peers.fleet import MODEL
from peers.process import eventually
from peers.router import binary, config_for

TURNS = 4


def pins(fleet, folder):
    """What `artifacts fetch` tells to pin."""
    file = folder / "artifacts.yaml"
    file.write_text(json.dumps(config_for(fleet)))
    command = [binary(), "artifacts", "fetch", "--config", file, "--to", folder / "review"]
    saved = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert saved.returncode == 0, saved.stderr
    return re.findall(r'^- "(blake3:[0-9a-f]{64})"', saved.stdout, re.M)


@pytest.fixture(scope="module", params=["disaggregated", "aggregated"])
def fleet(request, version, folder):
    place = folder / request.param
    if request.param == "disaggregated":
        found = fleets.disaggregated(version, place, prefill=3, decode=2)
    else:
        found = fleets.aggregated(version, place, workers=3)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    found = pins(fleet, fleet.folder)
    router = module_router(fleet, change=lambda config: config["dynamo"].update(kv={"enabled": True, "pinned_artifacts": found}))
    eventually(lambda: scored(router), 30, "prompts are scored")
    return router


def scored(router):
    """Files are loaded in the background: until then load decides."""
    before = results(router)
    assert ask(router.url, chat(os.urandom(8).hex())).ok
    return results(router, "overlap", "no_overlap") > 0 and before is not None


def results(router, *names):
    return sum(router.metric("continuum_dynamo_kv_selection_total", result=name) for name in names)


def reader(answer):
    """The worker that read the prompt."""
    return check_pair(answer)[0] if answer.pinned("prefill") else check_single(answer)


def explain(router, body):
    answer = httpx.post(f"{router.admin_url}/admin/dynamo/explain", json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    return answer.json()


def converse(router, subject, turns=TURNS):
    """A conversation that grows, each turn after the workers have told of the one before; the workers that read its prompts."""
    messages = [{"role": "system", "content": f"You know all about {subject}. " * 12}]
    readers = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn} about {subject}: what comes next? " * 6})
        body = chat(messages=messages, max_tokens=8, stream=turn % 2 == 0)
        stored = router.metric("continuum_dynamo_kv_events_total", result="stored")
        answer = ask(router.url, body)
        readers.append(reader(answer))
        eventually(lambda: router.metric("continuum_dynamo_kv_events_total", result="stored") > stored, 10, "the turn is in the index")
        messages.append({"role": "assistant", "content": answer.content or "."})
    return readers, messages


def test_a_conversation_stays_where_it_is_cached(router):
    for _ in range(3):
        readers, messages = converse(router, os.urandom(4).hex())
        assert len(set(readers)) == 1, readers
        shown = explain(router, chat(messages=messages))
        chosen = [row for row in shown["candidates"] if row["standing"] == "chosen" and row["prompt"] and row["prompt"]["device_blocks"]]
        assert str(readers[0]) in {row["worker_id"] for row in chosen}, shown
        others = [row["prompt"]["device_blocks"] for row in shown["candidates"] if row["prompt"] and row not in chosen]
        assert all(chosen[0]["prompt"]["device_blocks"] > held for held in others), shown
    assert results(router, "overlap") >= 3 * (TURNS - 1)
    assert router.metric("continuum_dynamo_selection_total", reason="kv_aware") >= 3 * (TURNS - 1)
    assert results(router, "render_unavailable", "prompt_too_large", "artifact_unpinned") == 0


def test_completions_are_scored_too(router):
    prompt = f"{os.urandom(8).hex()} " * 60
    stored = router.metric("continuum_dynamo_kv_events_total", result="stored")
    first = reader(ask(router.url, completion(prompt), path="/v1/completions"))
    eventually(lambda: router.metric("continuum_dynamo_kv_events_total", result="stored") > stored, 10, "its blocks are in the index")
    for turn in range(3):
        assert reader(ask(router.url, completion(f"{prompt} and then {turn}"), path="/v1/completions")) == first


def test_token_ids_are_taken_by_the_frontend(router):
    changed = json.loads(json.dumps(router.config))
    changed["dynamo"]["kv"]["send_token_data"] = True
    version = router.status()["config"]["version"]
    router.write(changed)
    eventually(lambda: router.status()["config"]["version"] > version, 10, "the change is in force")
    body = chat("count these tokens, please, all of them", max_tokens=3)
    with_ids = ask(router.url, body)
    reader(with_ids)
    router.write(router.config)
    eventually(lambda: router.status()["config"]["version"] > version + 1, 10, "and taken back")
    without = ask(router.url, body)
    assert with_ids.body["usage"]["prompt_tokens"] == without.body["usage"]["prompt_tokens"] > 8


def test_what_is_not_pinned_is_not_run(fleet, routers):
    router = routers(fleet, change=lambda config: config["dynamo"].update(kv={"enabled": True}))
    for _ in range(4):
        reader(ask(router.url, chat(model=MODEL)))
    assert results(router, "artifact_unpinned") >= 4
    assert results(router, "overlap", "no_overlap") == 0
