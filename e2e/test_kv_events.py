"""Block events of real workers: they fill the index, and what a worker held goes with it."""

import os

import pytest

from peers.ask import ask, chat
from peers.fleet import Fleet
from peers.process import eventually

LEASE_SECONDS = 5
"""How long the records of a killed worker live on here; the default is 10 or 30 s."""


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = Fleet(version, folder / "fleet", speedup=100)
    for _ in range(2):
        found.start_worker("agg", lease=LEASE_SECONDS)
    found.start_frontend()
    yield found.settle()
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    return module_router(fleet, change=lambda config: config["dynamo"].update(kv={"enabled": True}))


def counted(router, *results):
    return sum(router.metric("continuum_dynamo_kv_events_total", result=result) for result in results)


def held(router):
    return router.metric("continuum_dynamo_kv_index_ownerships")


PROMPTS = 4
BLOCKS_EACH = 10


def converse(router):
    """Prompts of some blocks each, and no two with the same beginning: a prefix that a worker holds is not stored again."""
    for _ in range(PROMPTS):
        subject = os.urandom(4).hex()
        assert ask(router.url, chat(f"{subject}: tell me all about {subject}. " * 20, max_tokens=5)).ok


def check_clean(router):
    """Nothing was lost and nothing was misunderstood."""
    bad = ("gap", "missing_parent", "unknown_block", "invalid_sequence", "unscored_worker", "unsupported_domain", "foreign", "malformed",
           "unknown_version", "topic_mismatch", "oversized", "identity_mismatch", "over_capacity", "over_budget", "transport_refused")
    found = {result: counted(router, result) for result in bad}
    assert not any(found.values()), found


def test_every_worker_is_subscribed_to(router):
    shown = router.workers()
    assert shown["kv_event_publishers"] == 2
    rows = [row for row in shown["subscriptions"] if row["family"] == "kv-events"]
    assert [(row["state"], row["transport"], row["component"]) for row in rows] == [("connected", "direct", "agg")] * 2
    assert router.metric("continuum_dynamo_kv_subscriptions", state="connected", transport="direct") == 2
    assert router.metric("continuum_dynamo_kv_index_ranks") == 2


def test_what_workers_store_is_known(router):
    converse(router)
    eventually(lambda: held(router) >= PROMPTS * BLOCKS_EACH, 10, "the blocks of the prompts are in the index")
    assert counted(router, "stored") >= PROMPTS
    check_clean(router)


def test_turned_off_it_is_empty_and_turned_on_it_fills_again(router):
    off = {**router.config, "dynamo": {**router.config["dynamo"], "kv": {"enabled": False}}}
    router.write(off)
    eventually(lambda: held(router) == 0 and router.metric("continuum_dynamo_kv_subscriptions") == 0, 10, "the index is empty")
    assert router.metric("continuum_dynamo_kv_index_ranks") == 0
    router.write(router.config)
    eventually(lambda: router.metric("continuum_dynamo_kv_subscriptions", state="connected") == 2, 10, "both are subscribed to again")
    converse(router)
    eventually(lambda: held(router) >= PROMPTS * BLOCKS_EACH, 10, "the index is filled again")
    check_clean(router)


def test_a_killed_worker_takes_its_blocks_along(router, fleet):
    before = held(router)
    victim = fleet.living()[0]
    victim.process.kill()
    eventually(lambda: router.sees(fleet), 30, "the killed worker has left the view")
    eventually(lambda: 0 < held(router) < before, 5, "its blocks are gone, those of the other one are not")
    assert router.metric("continuum_dynamo_kv_index_ranks") == 1
    assert router.metric("continuum_dynamo_kv_subscriptions") == 1


def test_a_restarted_router_fills_its_index_as_events_come(router, fleet):
    router.process.stop()
    router.start()
    router.settle(fleet)
    eventually(lambda: router.metric("continuum_dynamo_kv_subscriptions", state="connected") == 1, 10, "the worker is subscribed to")
    assert held(router) == 0
    converse(router)
    eventually(lambda: held(router) >= PROMPTS * BLOCKS_EACH, 10, "the blocks of the prompts are in the index")
    check_clean(router)
