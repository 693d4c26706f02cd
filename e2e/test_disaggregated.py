"""Two prefill and two decode workers: every answer comes from the pair that the router chose, and a client cannot choose another one."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from peers.ask import ask, chat, check_pair, completion
from peers.process import eventually

REQUESTS = 40
AT_ONCE = 8


@pytest.fixture(scope="module")
def router(disagg, module_router):
    return module_router(disagg)


def many(router, make, path="/v1/chat/completions", count=REQUESTS, at_once=AT_ONCE):
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda n: ask(router.url, make(n), path=path), range(count)))


def check_spread(disagg, pairs):
    """Every worker has had its share."""
    prefills, decodes = Counter(p for p, _ in pairs), Counter(d for _, d in pairs)
    assert sorted(prefills) == disagg.ids("prefill"), prefills
    assert sorted(decodes) == disagg.ids("decode"), decodes


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("path, make", [("/v1/chat/completions", chat), ("/v1/completions", completion)], ids=["chat", "completions"])
def test_answers_come_from_the_pinned_pair(router, disagg, path, make, stream):
    answers = many(router, lambda n: make(f"question {n}", stream=stream), path)
    check_spread(disagg, [check_pair(answer) for answer in answers])


def test_requests_one_after_the_other_also_use_every_worker(router, disagg):
    answers = many(router, lambda n: chat(f"question {n}"), count=16, at_once=1)
    check_spread(disagg, [check_pair(answer) for answer in answers])


def test_long_prompts_and_answers_at_once(router, disagg):
    answers = many(router, lambda n: chat(f"question {n} " * 500, stream=n % 2 == 0, max_tokens=200), count=24)
    check_spread(disagg, [check_pair(answer) for answer in answers])


def test_load_is_heard_and_nothing_stays_booked(router):
    many(router, lambda n: chat(f"question {n} " * 50, max_tokens=100), count=24)
    assert router.metric("continuum_dynamo_load_events_total", result="applied") > 0
    assert router.metric("continuum_dynamo_selection_total", role="decode", reason="load") > 0
    picks = router.metric("continuum_dynamo_selection_total", role="prefill")
    assert picks > 0 and picks == router.metric("continuum_dynamo_selection_total", role="decode")

    def idle():
        return router.metric("continuum_dynamo_inflight_booked") == 0 and router.metric("continuum_requests_in_flight") == 0

    eventually(idle, 10, "all bookings have ended")


def test_without_x_backend_nothing_is_told(router):
    for stream in (False, True):
        answer = ask(router.url, chat(stream=stream), headers={})
        assert answer.ok, answer.text
        told = {name for name in answer.headers if name.startswith(("x-continuum-", "x-dynamo-"))}
        assert told == {"x-continuum-routing-path"}
        assert answer.headers["x-continuum-routing-path"] == "disaggregated"
        assert "worker_id" not in answer.text


def test_the_backend_is_told_with_x_backend(router):
    answer = ask(router.url, chat())
    assert answer.headers["x-continuum-backend"] == "frontend-0"


def test_a_request_id_is_kept(router):
    answer = ask(router.url, chat(), headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"


JUNK = {
    "worker id": {"x-dynamo-worker-instance-id": "12345"},
    "prefill id": {"x-dynamo-prefill-instance-id": "12345"},
    "hex ids": {"x-dynamo-worker-instance-id": "0xff", "x-dynamo-prefill-instance-id": "ff"},
    "empty ids": {"x-dynamo-worker-instance-id": "", "x-dynamo-prefill-instance-id": ""},
    "too large": {"x-dynamo-worker-instance-id": "99999999999999999999999"},
    "other case": {"X-Dynamo-Worker-Instance-Id": "12345"},
    "aliases": {"x-worker-instance-id": "12345", "x-prefill-instance-id": "12345"},
    "ranks": {"x-dynamo-dp-rank": "7", "x-dynamo-prefill-dp-rank": "7"},
    "rank aliases": {"x-dp-rank": "7", "x-prefill-dp-rank": "7"},
    "data-parallel alias": {"x-data-parallel-rank": "7"},
    "not a number": {"x-dynamo-dp-rank": "abc"},
    "session": {"x-dynamo-session-id": "s1", "x-dynamo-parent-session-id": "s0"},
    "priority": {"x-dynamo-request-priority": "5", "x-dynamo-request-strict-priority": "5"},
    "tenant": {"x-tenant-id": "other"},
    "gateway": {"x-gateway-destination-endpoint": "127.0.0.1:1", "x-prefiller-host-port": "127.0.0.1:1"},
}


@pytest.mark.parametrize("headers", JUNK.values(), ids=JUNK.keys())
def test_pins_in_client_headers_are_not_obeyed(router, headers):
    for stream in (False, True):
        check_pair(ask(router.url, chat(stream=stream), headers={"x-backend": "", **headers}))
    # A rank that does not exist makes old versions refuse the worker for seconds: it must never have got there.
    for _ in range(4):
        check_pair(ask(router.url, chat()))


FIELDS = {
    "decode worker": {"decode_worker_id": 12345},
    "prefill worker": {"prefill_worker_id": 12345},
    "backend instance": {"backend_instance_id": 12345},
    "ranks": {"dp_rank": 7, "prefill_dp_rank": 7},
    "all": {"backend_instance_id": 1, "decode_worker_id": 2, "prefill_worker_id": 3, "dp_rank": 7, "prefill_dp_rank": 7},
    "huge token": {"token_data": [4294967295, 7]},
    "no tokens": {"token_data": []},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
def test_pins_in_the_body_are_not_obeyed(router, fields):
    for stream in (False, True):
        check_pair(ask(router.url, chat(stream=stream, nvext=fields)))
    for _ in range(4):
        check_pair(ask(router.url, chat()))


def test_a_client_cannot_choose_among_real_workers(router, disagg):
    """Pins of workers that exist are worth nothing either: the spread stays what the router makes of it."""
    prefill, decode = disagg.ids("prefill")[0], disagg.ids("decode")[0]
    headers = {
        "x-backend": "", "x-dynamo-worker-instance-id": str(decode), "x-dynamo-prefill-instance-id": str(prefill),
        "x-worker-instance-id": str(decode), "x-prefill-instance-id": str(prefill),
    }
    body = chat(nvext={"decode_worker_id": decode, "prefill_worker_id": prefill})
    answers = [ask(router.url, body, headers=headers) for _ in range(16)]
    check_spread(disagg, [check_pair(answer) for answer in answers])


def test_given_tokens_do_not_replace_the_prompt(router):
    plain = ask(router.url, chat())
    given = ask(router.url, chat(nvext={"token_data": list(range(64))}))
    assert given.body["usage"]["prompt_tokens"] == plain.body["usage"]["prompt_tokens"]


def test_a_pin_hidden_by_an_escape_is_not_obeyed(router):
    """The same member names, spelled so that a search for them finds nothing."""
    import httpx

    text = (
        '{"model":"Qwen/Qwen3-0.6B","messages":[{"role":"user","content":"hi"}],"max_tokens":3,'
        '"nv\\u0065xt":{"decode_w\\u006frker_id":12345,"dp_r\\u0061nk":7,"extra_fields":["worker_id"]}}'
    )
    raw = httpx.post(f"{router.url}/v1/chat/completions", content=text,
                     headers={"content-type": "application/json", "x-backend": ""}, timeout=60)
    assert raw.status_code == 200, raw.text
    pinned = int(raw.headers["x-continuum-decode-worker"].rpartition("/")[2].partition("@")[0])
    assert raw.json()["nvext"]["worker_id"]["decode_worker_id"] == pinned
