"""What becomes of the frontend's answers: the client's own mistakes come through, everything about pins is the router's business."""

import httpx
import pytest

from peers.ask import ask, chat, check_pair, completion


@pytest.fixture(scope="module")
def router(disagg, module_router):
    return module_router(disagg)


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("path, make", [("/v1/chat/completions", chat), ("/v1/completions", completion)], ids=["chat", "completions"])
def test_an_unknown_model_is_not_found(router, path, make, stream):
    answer = ask(router.url, make(model="nope", stream=stream), path=path)
    assert answer.status == 404
    assert answer.error["code"] == "model_not_found"
    assert "nope" in answer.error["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
def test_the_clients_own_mistakes_are_told_as_the_frontend_tells_them(router, stream):
    answer = ask(router.url, chat(max_tokens=0, stream=stream))
    assert answer.status == 400
    assert "Max tokens must be greater than 0" in answer.text
    answer = ask(router.url, chat(nvext={"bogus": 1}, stream=stream))
    assert answer.status == 400
    assert "unknown field `bogus`" in answer.text
    body = chat(stream=stream)
    del body["messages"]
    answer = ask(router.url, body)
    assert answer.status == 400
    assert "missing field `messages`" in answer.text


def test_a_mistake_makes_nobody_suspect(router, disagg):
    for _ in range(8):
        assert ask(router.url, chat(max_tokens=0)).status == 400
    assert router.metric("continuum_dynamo_suspect_workers") == 0
    assert router.metric("continuum_dynamo_repicks_total") == 0
    decodes = {check_pair(ask(router.url, chat()))[1] for _ in range(8)}
    assert sorted(decodes) == disagg.ids("decode")


FINE = {
    "two choices": {"n": 2},
    "cache salt": {"cache_salt": "tenant-a"},
    "cache salt in nvext": {"nvext": {"cache_salt": "tenant-a"}},
    "unknown extra field": {"nvext": {"extra_fields": ["worker_id", "bogus"]}},
    "timing": {"nvext": {"extra_fields": ["worker_id", "timing"]}},
    "usage in the stream": {"stream": True, "stream_options": {"include_usage": True}},
    "annotations": {"stream": True, "nvext": {"annotations": ["formatted_prompt", "token_ids"]}},
}


@pytest.mark.parametrize("fields", FINE.values(), ids=FINE.keys())
def test_what_the_frontend_understands_reaches_it(router, fields):
    answer = ask(router.url, chat(**fields))
    check_pair(answer)
    if fields.get("stream_options"):
        assert any(event.get("usage") for event in answer.events)
    if "timing" in fields.get("nvext", {}).get("extra_fields", []):
        assert answer.body["nvext"]["timing"]
    if fields.get("nvext", {}).get("annotations"):
        assert "event: formatted_prompt" in answer.text


@pytest.mark.parametrize("text, why", [
    ("", "empty"),
    ("{", "cut off"),
    ("[]", "not an object"),
    ('{"messages": []}', "no model"),
    ('{"model": 1, "messages": []}', "model is no string"),
    ('{"model": "Qwen/Qwen3-0.6B", "messages": []} x', "something after it"),
])
def test_a_body_that_is_no_request_is_refused_by_the_router(router, text, why):
    raw = httpx.post(f"{router.url}/v1/chat/completions", content=text, headers={"content-type": "application/json"}, timeout=30)
    assert raw.status_code == 400, (why, raw.text)
    error = raw.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"]


def test_the_routers_own_pages(router):
    assert httpx.get(f"{router.url}/health").status_code == 200
    assert httpx.get(f"{router.url}/live").status_code == 200
    assert httpx.get(f"{router.url}/ready").status_code == 200
    assert httpx.get(f"{router.url}/nowhere").status_code == 404
    assert httpx.get(f"{router.url}/v1/chat/completions").status_code == 405


def test_models_are_listed(router):
    listed = httpx.get(f"{router.url}/v1/models").json()
    assert listed["object"] == "list"
    assert [entry["id"] for entry in listed["data"]] == ["Qwen/Qwen3-0.6B"]
    one = httpx.get(f"{router.url}/v1/models/Qwen/Qwen3-0.6B")
    assert one.status_code == 200 and one.json()["id"] == "Qwen/Qwen3-0.6B"


def test_a_stream_arrives_piece_by_piece(router):
    """The first pieces are there long before the last one is made."""
    import time

    begun = time.monotonic()
    with httpx.stream("POST", f"{router.url}/v1/chat/completions", json=chat(stream=True, max_tokens=1500), timeout=60) as raw:
        first = None
        for _ in raw.iter_bytes():
            first = first or time.monotonic() - begun
        whole = time.monotonic() - begun
    assert first < whole / 2, (first, whole)
