"""The fleet itself, without a router: what the other tests rely on. When this fails, the fault is in the tests' peers."""

import httpx

from peers.ask import ask, chat

WORKER, PREFILL = "x-dynamo-worker-instance-id", "x-dynamo-prefill-instance-id"


def test_the_frontend_answers_from_the_pinned_pair_and_tells_it(disagg):
    url = disagg.frontends[0].url
    for prefill in disagg.ids("prefill"):
        for decode in disagg.ids("decode"):
            for stream in (False, True):
                answer = ask(url, chat(stream=stream), {WORKER: str(decode), PREFILL: str(prefill)})
                assert answer.ok, answer.text
                assert answer.used[0] == prefill and answer.used[2] == decode


def test_the_frontend_refuses_what_is_not_pinned(disagg):
    answer = ask(disagg.frontends[0].url, chat(), {})
    assert answer.status == 500
    assert answer.error["message"] == "Failed to generate completions"


def test_every_worker_publishes_load_on_the_loopback_device(disagg):
    channels = [
        value for key, value in disagg.etcd.values("v1/event_channels/").items() if "/topic/kv_metrics/" in key
    ]
    assert len(channels) == 4
    for value in channels:
        assert value["transport"]["config"]["endpoint"].startswith("tcp://127.0.0.1:"), value


def test_health_lists_the_workers(disagg):
    listed = httpx.get(f"{disagg.frontends[0].url}/health").json()["instances"]
    ids = {entry["instance_id"] for entry in listed if entry["endpoint"] == "generate"}
    assert ids == {*disagg.ids("prefill"), *disagg.ids("decode")}
