"""Fleets that change their shape, or that mix shapes: the frontend then draws lots, and the router repeats a draw that it lost."""

import time

import pytest

from peers import fleet as fleets
from peers.ask import Traffic, ask, chat, check_pair, check_single
from peers.fleet import LEASE_SECONDS
from peers.process import eventually


def question(thread, count):
    return chat(f"thread {thread} question {count}", stream=thread % 2 == 0, max_tokens=40)


def check_either(answer):
    return check_pair(answer) if answer.pinned("prefill") else check_single(answer)


@pytest.fixture
def fleet(version, folder, request):
    found = fleets.disaggregated(version, folder / request.node.name, prefill=1, decode=1)
    yield found
    found.stop()


def test_from_disaggregated_to_aggregated_and_back(fleet, routers):
    router = routers(fleet)
    check_pair(ask(router.url, chat()))
    with Traffic(router.url, question, threads=4) as traffic:
        traffic.wait_for(20)
        fleet.start_worker("agg")
        fleet.start_worker("agg")
        fleet.settle()
        eventually(lambda: router.sees(fleet), 30, "the view has both shapes")
        traffic.wait_for(40)
        leaving = fleet.living("prefill") + fleet.living("decode")
        for worker in leaving:
            worker.process.terminate()
        for worker in leaving:
            worker.process.wait(30)
        eventually(lambda: router.sees(fleet), LEASE_SECONDS, "the view is aggregated")
        eventually(lambda: ask(router.url, chat()).ok, 30, "the aggregated workers serve")
        changed = time.monotonic()
        traffic.wait_for(40)
        traffic.stop()
    during = [answer for asked, answer in traffic.answers if asked < changed]
    after = [answer for asked, answer in traffic.answers if asked >= changed]
    # While both shapes are there, a frontend draws one of them for each request, and five draws in a row may be lost. While one half of
    # the pair has gone and the other has not, a frontend refuses the model altogether.
    lost = [answer for answer in during if not answer.ok]
    for answer in lost:
        assert answer.error["code"] in ("model_not_ready", "disaggregated_decode_failed"), (answer.status, answer.text[:300])
    drawn = [answer for answer in lost if answer.error["code"] == "disaggregated_decode_failed"]
    assert len(drawn) < len(during) / 2, [(answer.status, answer.text[:200]) for answer in drawn]
    for answer in [answer for answer in during if answer.ok]:
        check_either(answer)
    for answer in after:
        check_single(answer)
    used = {check_single(ask(router.url, chat(stream=n % 2 == 0))) for n in range(16)}
    assert sorted(used) == fleet.ids("agg")

    fleet.start_worker("prefill")
    fleet.start_worker("decode")
    for worker in fleet.living("agg"):
        worker.process.terminate()
        worker.process.wait(30)
    fleet.settle()
    eventually(lambda: router.sees(fleet) and ask(router.url, chat()).ok, 60, "the pair serves")
    for _ in range(8):
        check_pair(ask(router.url, chat()))


def test_mixed_shapes_are_served_by_pairs(fleet, routers):
    """Prefill, decode and aggregated workers of one model in one namespace: pairs serve, and no worker becomes suspect for a lost draw."""
    fleet.start_worker("agg")
    fleet.settle()
    router = routers(fleet)
    answers = []

    def drawn():
        """For some seconds after its start a frontend knows one shape only and draws no lots."""
        answers.append(ask(router.url, chat(f"question {len(answers)}", stream=len(answers) % 2 == 0)))
        return len(answers) >= 12 and router.metric("continuum_retries_total", kind="lottery") > 0

    # Slowly: about every second draw is lost, and the retry budget of a pool allows ten repeats in ten seconds:
    # at this pace five requests need five.
    eventually(drawn, 60, "a draw was lost and repeated", every=2)
    served = [answer for answer in answers if answer.ok]
    for answer in served:
        check_pair(answer)
    assert len(served) >= len(answers) * 0.6, [(answer.status, answer.text[:200]) for answer in answers if not answer.ok]
    assert router.metric("continuum_dynamo_suspect_workers") == 0
