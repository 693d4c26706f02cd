"""Workers that are killed, hang, leave or come back while clients are asking. A client sees an error only on a stream that had begun on
the worker that died, although the dead worker stays registered for 10 s (before 1.6) or 30 s."""

import signal

import pytest

from peers import fleet as fleets
from peers.ask import Traffic, ask, chat, check_pair
from peers.fleet import LEASE_SECONDS
from peers.process import eventually
from peers.way import Way

SHORT_LEASE_SECONDS = 10
"""The lease of workers that take the place of dead ones, so that the next test need not wait long for theirs to end."""


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = fleets.disaggregated(version, folder / "fleet")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    return module_router(fleet)


@pytest.fixture
def whole(fleet, router):
    """The fleet at full strength: what an earlier test has ended is started anew."""
    for role in ("prefill", "decode"):
        for _ in range(2 - len(fleet.living(role))):
            fleet.start_worker(role, lease=SHORT_LEASE_SECONDS)
    fleet.settle()
    # A fresh router suspects nobody.
    router.process.stop()
    router.start()
    router.settle(fleet)
    for _ in range(4):
        check_pair(ask(router.url, chat()))
    return fleet


def mixed(thread, count):
    """Half of the threads stream. Long enough that a request is always under way on each worker."""
    return chat(f"thread {thread} question {count}", stream=thread % 2 == 0, max_tokens=150)


def check_clients(answers, dead, role):
    """Nobody saw an error, but those whose stream had begun on the dead worker. Returns how many those were."""
    hurt = 0
    for answer in answers:
        if answer.ok:
            check_pair(answer)
            continue
        begun_there = answer.events and answer.pinned(role)[1] == dead
        assert begun_there, (answer.status, answer.broken, answer.text[-600:], dict(answer.headers))
        assert answer.event_errors, answer.text[-600:]
        hurt += 1
    return hurt


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_killed_worker_is_not_felt(whole, router, role):
    victim = whole.living(role)[0]
    with Traffic(router.url, mixed, threads=6) as traffic:
        traffic.wait_for(30)
        victim.process.kill()
        traffic.wait_for(60)
        eventually(lambda: router.sees(whole), LEASE_SECONDS, "the view has lost the dead worker")
        traffic.wait_for(30)
        answers = traffic.stop()
    hurt = check_clients(answers, victim.instance, role)
    assert hurt <= 6, hurt
    late = answers[-20:]
    assert all(answer.pinned(role)[1] != victim.instance for answer in late)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_frozen_worker_is_not_felt_by_more_than_the_first(whole, router, role):
    """A worker that hangs answers nothing for 5 s, after which the frontend gives up: the request is then served by others."""
    victim = whole.living(role)[-1]
    victim.process.send(signal.SIGSTOP)
    try:
        answers = [ask(router.url, chat(f"question {n}")) for n in range(12)]
    finally:
        victim.process.kill()
    for answer in answers:
        check_pair(answer)
        assert answer.pinned(role)[1] != victim.instance
    assert sum(answer.seconds > 3 for answer in answers) <= 2, [round(answer.seconds, 1) for answer in answers]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_worker_that_leaves_in_order_is_not_felt(whole, router, role):
    victim = whole.living(role)[0]
    with Traffic(router.url, mixed, threads=6) as traffic:
        traffic.wait_for(30)
        victim.process.terminate()
        eventually(lambda: router.sees(whole) if not victim.process.alive else False, LEASE_SECONDS, "the worker has left")
        traffic.wait_for(30)
        answers = traffic.stop()
    for answer in answers:
        check_pair(answer)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_worker_that_leaves_unseen_is_not_felt(whole, routers, role):
    """The router has lost the registry and the frontends have not: they no longer know a worker that the router still picks.
    1.6 says so with the words that it has for a client's mistake."""
    way = Way(whole.etcd.port)

    def through_it(config):
        config["dynamo"]["discovery"]["etcd"]["endpoints"] = [way.endpoint]

    router = routers(whole, through_it)
    for _ in range(4):
        check_pair(ask(router.url, chat()))
    way.cut()
    eventually(lambda: router.metric("continuum_dynamo_discovery_connected") == 0, 15, "the loss is noticed")
    victim = whole.living(role)[0]
    victim.process.terminate()
    victim.process.wait(20)
    eventually(lambda: victim.instance not in whole.instances()[role], LEASE_SECONDS, "its records are gone")
    answers = [ask(router.url, chat(f"question {n}", stream=n % 2 == 0)) for n in range(20)]
    for answer in answers:
        check_pair(answer)
        assert answer.pinned(role)[1] != victim.instance
    assert str(victim.instance) in {worker["worker_id"] for worker in router.workers()["workers"]}
    # Whoever has met it has told the others.
    met = router.metric("continuum_dynamo_repicks_total", cause="suspect", result="success")
    assert 1 <= met <= 3, met
    way.mend()
    eventually(lambda: router.sees(whole), 30, "the view is right again")
    way.cut()


def test_a_new_worker_is_used(whole, router):
    new = whole.start_worker("decode")
    whole.settle()
    with Traffic(router.url, mixed, threads=6) as traffic:
        eventually(lambda: any(a.ok and a.pinned("decode")[1] == new.instance for _, a in list(traffic.answers)), 30, "the new worker is used")
        answers = traffic.stop()
    for answer in answers:
        check_pair(answer)
    new.process.stop()
    eventually(lambda: router.sees(whole), LEASE_SECONDS, "the new worker has left")


def test_without_prefill_workers_the_model_is_not_ready(whole, router):
    for worker in whole.living("prefill"):
        worker.process.terminate()
    for worker in whole.living("prefill"):
        worker.process.wait(20)
    eventually(lambda: router.sees(whole), LEASE_SECONDS, "the view has no prefill worker")
    for stream in (False, True):
        answer = ask(router.url, chat(stream=stream))
        assert answer.status == 503, answer.text
        assert answer.error["code"] == "model_not_ready", answer.text
        assert answer.headers["retry-after"]
    assert router.metric("continuum_backend_up", backend="frontend-0") == 1
    whole.start_worker("prefill")
    whole.start_worker("prefill")
    whole.settle()
    eventually(lambda: ask(router.url, chat()).ok, 30, "the model is ready again")
    pairs = [check_pair(ask(router.url, chat())) for _ in range(12)]
    assert sorted({prefill for prefill, _ in pairs}) == whole.ids("prefill")
