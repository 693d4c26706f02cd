"""What an operator sees and does: the admin view, metrics, reload, drain, restart."""

import json
import re
import signal
import threading
from pathlib import Path

import httpx
import pytest

from peers.ask import ask, chat, check_pair
from peers.fleet import MODEL
from peers.process import eventually, free_port

TEMPLATE = Path(__file__).parents[1] / "docs/config-templates/dynamo-direct-shim.yaml"


@pytest.fixture(scope="module")
def router(disagg, module_router):
    return module_router(disagg)


def test_the_workers_are_shown_in_the_documented_shape(router, disagg):
    shown = router.workers()
    assert shown["enabled"] is True and shown["connected"] is True
    assert shown["source"] == "etcd"
    assert shown["signals"] == {"load": True, "capacity": True}
    assert shown["namespace"] == "dynamo" and shown["namespaces"] == ["dynamo"]
    assert shown["generation"] > 0
    assert len(shown["workers"]) == 4
    for worker in shown["workers"]:
        assert worker["instance_id"] == f"{int(worker['worker_id']):x}"
        assert worker["role"] == worker["component"]
        assert int(worker["worker_id"]) in disagg.ids(worker["role"])
        assert (worker["namespace"], worker["model"], worker["endpoint"]) == ("dynamo", MODEL, "generate")
        assert (worker["dp_start_rank"], worker["dp_size"], worker["block_size"]) == (0, 1, 16)
        assert worker["capacity"]["total_kv_blocks"] == 2048
        for moment in ("first_seen", "last_updated"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", worker[moment]), worker[moment]
    assert shown["load_publishers"] == 4
    # Decode workers of a disaggregated fleet publish no KV events.
    assert shown["kv_event_publishers"] == 2
    rows = [row for row in shown["subscriptions"] if row["family"] == "kv_metrics"]
    assert len(rows) == 4
    for row in rows:
        assert (row["state"], row["transport"], row["namespace"]) == ("connected", "direct", "dynamo")


def test_no_address_and_no_card_is_shown(router, disagg):
    """Neither the workers' addresses nor the cards' contents leave the process, on the admin side or as a metric."""
    ports = set()
    for prefix in ("v1/instances/", "v1/event_channels/"):
        for value in disagg.etcd.values(prefix).values():
            ports |= set(re.findall(r"127\.0\.0\.1:(\d+)", json.dumps(value)))
    assert len(ports) >= 4
    for path in ("/admin/dynamo/workers", "/admin/status", "/metrics"):
        text = httpx.get(f"{router.admin_url}{path}").text
        assert "tcp://" not in text, path
        # Of a card's files neither names nor checksums; metrics have words for what became of them.
        assert "blake3:" not in text and "tokenizer.json" not in text and "tokenizer_config" not in text, path
        for port in ports:
            assert f":{port}" not in text, (path, port)


def test_explain_lists_the_candidates(router, disagg):
    shown = httpx.get(f"{router.admin_url}/admin/dynamo/explain", params={"model": MODEL})
    assert shown.status_code == 200, shown.text
    for instance in [*disagg.ids("prefill"), *disagg.ids("decode")]:
        assert str(instance) in shown.text
    assert "127.0.0.1" not in shown.text


def test_metrics_have_closed_labels(router):
    for n in range(8):
        ask(router.url, chat(model=f"client-string-{n}"))
        check_pair(ask(router.url, chat()))
    samples = router.metrics()
    assert router.metric("continuum_dynamo_discovery_connected") == 1
    assert router.metric("continuum_dynamo_discovery_workers", role="prefill") == 2
    assert router.metric("continuum_dynamo_discovery_workers", role="decode") == 2
    assert router.metric("continuum_dynamo_load_subscriptions", state="connected", transport="direct") == 4
    assert router.metric("continuum_requests_total", status_class="2xx", routing_path="disaggregated") >= 8
    assert router.metric("continuum_requests_total", status_class="4xx") >= 8
    assert router.metric("disaggregated_requests_total", routing_path="disaggregated") >= 8
    for (name, labels) in samples:
        assert not any("client-string" in value for _, value in labels), name


def test_a_changed_file_is_taken_without_a_restart(routers, disagg):
    router = routers(disagg)
    assert ask(router.url, chat(model="alias")).status == 404
    router.config["dynamo"]["shim"]["model_map"] = {"alias": MODEL}
    router.write(router.config)
    eventually(lambda: ask(router.url, chat(model="alias")).status == 200, 15, "the new name is served")
    answer = ask(router.url, chat(model="alias"))
    check_pair(answer)
    assert answer.body["model"] == "alias"
    streamed = ask(router.url, chat(model="alias", stream=True))
    check_pair(streamed)
    assert {event["model"] for event in streamed.events if "model" in event} == {"alias"}
    listed = [entry["id"] for entry in httpx.get(f"{router.url}/v1/models").json()["data"]]
    assert listed == sorted([MODEL, "alias"])


@pytest.mark.parametrize("how", ["file", "signal", "request"])
def test_a_broken_file_changes_nothing(routers, disagg, how):
    router = routers(disagg)
    before = router.metric("continuum_config_reloads_total", result="rejected")
    router.write(json.dumps({**router.config, "dynamoo": {}}))
    if how == "signal":
        router.reload_signal()
    if how == "request":
        answer = httpx.post(f"{router.admin_url}/admin/config/reload")
        assert answer.status_code >= 400 and "dynamoo" in answer.text
    eventually(lambda: router.metric("continuum_config_reloads_total", result="rejected") > before, 15, "the file is refused")
    assert router.metric("continuum_config_valid") == 0
    assert "dynamoo" in json.dumps(router.status())
    check_pair(ask(router.url, chat()))
    router.write(router.config)
    router.reload_signal()
    eventually(lambda: router.metric("continuum_config_valid") == 1, 15, "the mended file is taken")
    check_pair(ask(router.url, chat()))


def test_a_drain_finishes_the_streams(routers, disagg):
    router = routers(disagg)
    answers = []
    body = chat(stream=True, max_tokens=4000)
    threads = [threading.Thread(target=lambda: answers.append(ask(router.url, body))) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: router.metric("continuum_requests_in_flight") == 4, 10, "the streams are running", every=0.02)
    router.process.terminate()
    for thread in threads:
        thread.join(60)
    for answer in answers:
        check_pair(answer)
        assert answer.done
    assert len(answers) == 4
    assert router.process.wait(15) == 0


def test_a_second_signal_ends_at_once(routers, disagg):
    router = routers(disagg)
    thread = threading.Thread(target=lambda: ask(router.url, chat(stream=True, max_tokens=6000)))
    thread.start()
    eventually(lambda: router.metric("continuum_requests_in_flight") == 1, 10, "the stream is running", every=0.02)
    router.process.terminate()
    eventually(lambda: "drain" in router.process.text().lower(), 10, "the drain has begun")
    assert router.process.alive
    router.process.send(signal.SIGTERM)
    router.process.wait(5)
    thread.join(10)


def test_a_restarted_router_serves_at_once(routers, disagg):
    router = routers(disagg)
    check_pair(ask(router.url, chat()))
    router.process.kill()
    router.start()
    # Ready means that the view is there: the very first request is answered.
    check_pair(ask(router.url, chat()))
    check_uses_all(router, disagg)


def test_several_routers_share_a_fleet(routers, disagg):
    for router in (routers(disagg), routers(disagg)):
        check_uses_all(router, disagg)


def check_uses_all(router, disagg):
    """Every decode worker gets its share, as soon as none has work left from an earlier test: a router goes by their load."""
    used = set()
    eventually(lambda: used.add(check_pair(ask(router.url, chat()))[1]) or sorted(used) == disagg.ids("decode"), 30, "all are used")


def test_the_published_template_serves(routers, disagg):
    """The template of the documentation, with nothing changed but addresses and the model's name."""
    router = routers(disagg)
    router.process.stop()
    wanted = router.config
    text = TEMPLATE.read_text()
    text = fill_template(text, wanted)
    router.write(text)
    router.start_as_written()
    router.settle(disagg)
    check_pair(ask(router.url, chat()))


def fill_template(text, wanted):
    """The template as an operator fills it: its environment references, and listeners that are free on this machine."""
    frontends = [backend["url"] for backend in wanted["backends"]]
    etcd = wanted["dynamo"]["discovery"]["etcd"]
    values = {
        "FRONTEND_0_URL": frontends[0],
        "FRONTEND_1_URL": frontends[-1],
        "SPARE_URL": f"http://127.0.0.1:{free_port()}",
        "ETCD_URL": etcd["endpoints"][0],
        "DYN_NAMESPACE": etcd["namespace"],
    }
    text = re.sub(r"\$\{(\w+):-[^}]*\}", lambda reference: values[reference[1]], text)
    listeners = {
        "0.0.0.0:8080": wanted["server"]["bind_address"],
        "127.0.0.1:9090": wanted["admin"]["bind_address"],
        "127.0.0.1:9091": f"127.0.0.1:{free_port()}",
    }
    for written, free in listeners.items():
        assert text.count(f'"{written}"') == 1, written
        text = text.replace(f'"{written}"', f'"{free}"')
    return text
