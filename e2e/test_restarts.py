"""Frontends and etcd that go and come back while the workers live on."""

import pytest

from peers import fleet as fleets
from peers.ask import Traffic, ask, chat, check_pair
from peers.fleet import LEASE_SECONDS
from peers.process import eventually


@pytest.fixture(scope="module")
def fleet(version, folder):
    """Two prefill and two decode workers behind two frontends."""
    found = fleets.disaggregated(version, folder / "fleet")
    found.start_frontend()
    found.settle()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    return module_router(fleet)


def question(thread, count):
    return chat(f"thread {thread} question {count}", stream=thread % 2 == 0, max_tokens=150)


def test_both_frontends_are_used(fleet, router):
    with Traffic(router.url, question, threads=6) as traffic:
        traffic.wait_for(40)
        answers = traffic.stop()
    for answer in answers:
        check_pair(answer)
    assert {answer.headers["x-continuum-backend"] for answer in answers} == {"frontend-0", "frontend-1"}


def test_a_killed_frontend_is_felt_by_its_streams_alone(fleet, router):
    victim = fleet.frontends[0]
    with Traffic(router.url, question, threads=6) as traffic:
        traffic.wait_for(40)
        victim.process.kill()
        traffic.wait_for(60)
        answers = traffic.stop()
    hurt = 0
    for answer in answers:
        if answer.ok:
            check_pair(answer)
            continue
        # Its answer had begun there: nothing can be done about it but to say so, in a form that clients understand.
        assert answer.headers.get("x-continuum-backend") == "frontend-0", (answer.status, answer.broken, answer.text[-300:])
        assert answer.events and len(answer.event_errors) == 1 and answer.done, answer.text[-600:]
        hurt += 1
    assert hurt <= 6
    eventually(lambda: router.metric("continuum_backend_up", backend="frontend-0") == 0, 30, "the frontend is seen to be down")
    fleet.restart_frontend(victim)
    fleet.settle()
    eventually(lambda: router.metric("continuum_backend_up", backend="frontend-0") == 1, 30, "the frontend is seen to be up")
    backends = set()

    # It is up before it has found its workers again: until then it lists no model.
    def both_answer():
        answer = ask(router.url, chat())
        check_pair(answer)
        backends.add(answer.headers["x-continuum-backend"])
        return backends == {"frontend-0", "frontend-1"}

    eventually(both_answer, 30, "both frontends are used")


def test_all_frontends_gone_and_back(fleet, router):
    for frontend in fleet.frontends:
        frontend.process.kill()
    answer = ask(router.url, chat())
    assert answer.status in (502, 503), answer.text
    assert answer.error["message"] and answer.error["code"]
    for frontend in list(fleet.frontends):
        fleet.restart_frontend(frontend)
    fleet.settle()
    eventually(lambda: ask(router.url, chat()).ok, 30, "requests are served again")
    for _ in range(8):
        check_pair(ask(router.url, chat()))


def test_a_restart_of_etcd_loses_nobody(fleet, router):
    """The view outlives its source, and follows it again afterwards."""
    first_seen = {worker["worker_id"]: worker["first_seen"] for worker in router.workers()["workers"]}
    with Traffic(router.url, question, threads=4) as traffic:
        traffic.wait_for(20)
        fleet.etcd.process.kill()
        eventually(lambda: router.metric("continuum_dynamo_discovery_connected") == 0, 15, "the loss is noticed")
        assert router.sees(fleet)
        traffic.wait_for(10)
        fleet.etcd.start()
        eventually(lambda: router.metric("continuum_dynamo_discovery_connected") == 1, 60, "the source is back")
        traffic.wait_for(20)
        answers = traffic.stop()
    for answer in answers:
        check_pair(answer)
    assert router.metric("continuum_dynamo_discovery_events_total", kind="resync") >= 1
    assert {worker["worker_id"]: worker["first_seen"] for worker in router.workers()["workers"]} == first_seen


def test_after_that_the_fleet_is_still_followed(fleet, router, old):
    if old:
        # Frontends before 1.6 are of no use once their etcd has been away: some seconds later they end themselves, or, when it was
        # back soon, live on. Whoever runs them starts them again.
        for frontend in fleet.frontends:
            frontend.process.kill()
    fleet.revive_frontends()
    new = fleet.start_worker("decode")
    fleet.settle()
    eventually(lambda: router.sees(fleet), 60, "the new worker is in the view")
    eventually(lambda: fleet.revive_frontends() or check_pair(ask(router.url, chat())), 30, "requests are served")
    # Each frontend finds its way back to etcd at its own pace, and refuses pins to a worker that it does not know yet
    # with the words that it has for a client's mistake.
    uses = set()

    def all_use_it():
        answer = ask(router.url, chat())
        uses.add((answer.headers["x-continuum-backend"], check_pair(answer)[1]))
        return {("frontend-0", new.instance), ("frontend-1", new.instance)} <= uses

    eventually(all_use_it, 60, "the new worker is used through each frontend")


def test_a_worker_that_dies_while_etcd_is_away_is_not_felt(fleet, routers, old):
    """Nobody corrects the view for as long as that lasts."""
    if old:
        pytest.skip("frontends before 1.6 end themselves when etcd is away")
    # A fresh one: the test before may have used up the retries that a pool has.
    router = routers(fleet)
    fleet.etcd.process.kill()
    eventually(lambda: router.metric("continuum_dynamo_discovery_connected") == 0, 15, "the loss is noticed")
    victim = fleet.living("decode")[0]
    victim.process.kill()
    for n in range(40):
        answer = ask(router.url, chat(f"question {n}", stream=n % 2 == 0))
        check_pair(answer)
        assert answer.pinned("decode")[1] != victim.instance
    fleet.etcd.start()
    eventually(lambda: router.sees(fleet), 60 + LEASE_SECONDS, "the dead worker has left the view")
    for n in range(8):
        eventually(lambda: check_pair(ask(router.url, chat())), 30, "requests are served")
