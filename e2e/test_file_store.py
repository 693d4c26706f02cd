"""A fleet without etcd: workers, frontend and router share a folder."""

import pytest

from peers import fleet as fleets
from peers.ask import Traffic, ask, chat, check_pair
from peers.process import eventually

pytestmark = pytest.mark.versions("1.6.1")


@pytest.fixture(scope="module")
def fleet(version, folder):
    found = fleets.disaggregated(version, folder / "fleet", store=folder / "store")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def router(fleet, module_router):
    return module_router(fleet)


def test_answers_come_from_the_pinned_pair(fleet, router):
    pairs = [check_pair(ask(router.url, chat(f"question {n}", stream=n % 2 == 0))) for n in range(24)]
    assert sorted({prefill for prefill, _ in pairs}) == fleet.ids("prefill")
    assert sorted({decode for _, decode in pairs}) == fleet.ids("decode")
    assert router.workers()["source"] == "file"


def test_a_killed_worker_expires_and_is_not_felt(fleet, router):
    victim = fleet.living("decode")[0]
    with Traffic(router.url, lambda t, n: chat(f"{t} {n}", max_tokens=50), threads=4) as traffic:
        traffic.wait_for(20)
        victim.process.kill()
        eventually(lambda: router.sees(fleet), 30, "the dead worker's records have expired")
        traffic.wait_for(20)
        answers = traffic.stop()
    for answer in answers:
        check_pair(answer)


def test_the_router_has_written_nothing(fleet, router, folder):
    owners = {path.name for path in (folder / "store").rglob("*") if path.is_file()}
    assert not any("continuum" in name for name in owners)
