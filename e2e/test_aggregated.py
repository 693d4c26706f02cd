"""Two aggregated workers: one pin, never a prefill id."""

from collections import Counter

import pytest

from peers.ask import ask, chat, check_single, completion


@pytest.fixture(scope="module")
def router(agg, module_router):
    return module_router(agg)


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("path, make", [("/v1/chat/completions", chat), ("/v1/completions", completion)], ids=["chat", "completions"])
def test_answers_come_from_the_pinned_worker(router, agg, path, make, stream):
    used = Counter(check_single(ask(router.url, make(f"question {n}", stream=stream), path=path)) for n in range(20))
    assert sorted(used) == agg.ids("agg"), used


@pytest.mark.parametrize("headers", [
    {"x-dynamo-worker-instance-id": "12345"},
    {"x-dynamo-prefill-instance-id": "12345"},
    {"x-worker-instance-id": "12345"},
    {"x-dynamo-dp-rank": "3"},
    {"x-data-parallel-rank": "3"},
])
def test_pins_in_client_headers_are_not_obeyed(router, headers):
    for stream in (False, True):
        check_single(ask(router.url, chat(stream=stream), headers={"x-backend": "", **headers}))
    for _ in range(4):
        check_single(ask(router.url, chat()))


def test_pins_in_the_body_are_not_obeyed(router):
    check_single(ask(router.url, chat(nvext={"backend_instance_id": 12345, "dp_rank": 3})))


def test_the_view_names_the_role(router):
    assert {worker["role"] for worker in router.workers()["workers"]} == {"aggregated"}


def test_load_is_heard(router):
    for n in range(8):
        check_single(ask(router.url, chat(f"question {n} " * 50, max_tokens=100)))
    assert router.metric("continuum_dynamo_load_events_total", result="applied") > 0
