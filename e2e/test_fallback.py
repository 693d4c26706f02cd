"""What happens when pinned serving is not possible: a fallback to a backend that is no frontend, where that is switched on."""

import pytest

from peers import fleet as fleets
from peers.ask import ask, chat, check_pair
from peers.fleet import LEASE_SECONDS, MODEL
from peers.process import eventually
from peers.stub import Stub


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = fleets.disaggregated(version, folder / "fleet", prefill=1, decode=1)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def other():
    found = Stub()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, other, module_router):
    def change(config):
        config["backends"].append({"name": "other", "type": "openai", "url": other.url, "models": [MODEL, "only-there"]})
        config["disaggregated_serving"]["fallback_to_unified"] = True

    return module_router(fleet, change)


def from_other(answer):
    assert answer.ok, answer.text
    assert answer.headers["x-continuum-backend"] == "other"
    assert answer.headers["x-continuum-routing-path"] == "unified"
    assert answer.pinned("prefill") is None and answer.pinned("decode") is None
    assert answer.content == "stub"
    return True


def test_while_the_fleet_serves_it_is_asked(router, other):
    for _ in range(8):
        check_pair(ask(router.url, chat()))
    assert not other.heads


def test_a_model_of_another_backend_goes_there_without_pins(router, other):
    from_other(ask(router.url, chat(model="only-there"), headers={"x-backend": "", "x-dynamo-worker-instance-id": "1"}))
    assert not any(name.startswith("x-dynamo-") or name == "x-backend" for head in other.heads for name in head)


def test_dead_frontends_fall_back(fleet, router):
    frontend = fleet.frontends[0]
    frontend.process.kill()
    for _ in range(4):
        from_other(ask(router.url, chat()))
    fleet.restart_frontend(frontend)
    fleet.settle()
    eventually(lambda: check_pair(ask(router.url, chat())), 30, "the fleet serves again")


def test_a_pool_without_prefill_workers_falls_back(fleet, router):
    for worker in fleet.living("prefill"):
        worker.process.terminate()
        worker.process.wait(20)
    eventually(lambda: router.sees(fleet), LEASE_SECONDS, "the view has no prefill worker")
    for _ in range(4):
        from_other(ask(router.url, chat()))
    fleet.start_worker("prefill")
    fleet.settle()
    eventually(lambda: check_pair(ask(router.url, chat())), 30, "the fleet serves again")


def test_a_dead_only_decode_worker_falls_back(fleet, router):
    """The dead worker stays registered for its lease; there is no other one to choose."""
    victim = fleet.living("decode")[0]
    victim.process.kill()
    for _ in range(4):
        from_other(ask(router.url, chat()))
    fleet.start_worker("decode")
    fleet.settle()
    eventually(lambda: check_pair(ask(router.url, chat())), 60, "the fleet serves again")
