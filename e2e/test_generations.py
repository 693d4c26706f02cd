"""Two worker generations of one graph behind one prefix frontend, as during a rolling update: a pair never mixes them."""

import time

import pytest

from peers.ask import ask, chat, check_pair
from peers.fleet import Fleet
from peers.process import eventually

GENERATIONS = ("dynamo-aaaaaaaa", "dynamo-bbbbbbbb")

pytestmark = pytest.mark.versions("1.6.1")


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = Fleet(version, folder / "fleet")
    for namespace in GENERATIONS:
        for role in ("prefill", "decode"):
            found.start_worker(role, namespace=namespace)
    found.start_frontend("--namespace-prefix", "dynamo")
    found.settle()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    return module_router(fleet)


def test_both_generations_serve_and_never_mix(fleet, router):
    answers = []
    for n in range(12):
        answers.append(ask(router.url, chat(f"question {n}", stream=n % 2 == 0)))
        # The frontend draws one generation for each request. The retry budget of a pool allows ten repeats of a lost draw in ten seconds.
        time.sleep(2)
    served = [answer for answer in answers if answer.ok]
    assert len(served) >= 8, [(answer.status, answer.text[:200]) for answer in answers if not answer.ok]
    by_namespace = {}
    for answer in served:
        check_pair(answer)
        namespace = answer.pinned("decode")[0]
        assert answer.pinned("prefill")[0] == namespace
        by_namespace.setdefault(namespace, []).append(answer)
        assert fleet.by_instance(answer.pinned("decode")[1]).namespace == namespace
        assert fleet.by_instance(answer.pinned("prefill")[1]).namespace == namespace
    assert set(by_namespace) == set(GENERATIONS)
    assert router.metric("continuum_dynamo_suspect_workers") == 0


def test_the_view_tells_the_generations_and_metrics_the_configured_name(router):
    shown = router.workers()
    assert shown["namespaces"] == ["dynamo"]
    assert {worker["namespace"] for worker in shown["workers"]} == set(GENERATIONS)
    assert router.metric("continuum_dynamo_discovery_workers", namespace="dynamo") == 4
    assert not any("aaaaaaaa" in value for _, labels in router.metrics() for _, value in labels)


def test_the_old_generation_leaves(fleet, router):
    for worker in [worker for worker in fleet.living() if worker.namespace == GENERATIONS[0]]:
        worker.process.terminate()
        worker.process.wait(30)
    eventually(lambda: router.sees(fleet), 45, "one generation is left")
    eventually(lambda: ask(router.url, chat()).ok, 30, "the new generation serves")
    for n in range(12):
        answer = ask(router.url, chat(stream=n % 2 == 0))
        check_pair(answer)
        assert answer.pinned("decode")[0] == GENERATIONS[1]
