"""Data-parallel ranks: each is a candidate of its own, and the pin names it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from peers import fleet as fleets
from peers.ask import ask, chat, check_pair

RANKS = 2


@pytest.fixture(scope="module")
def ranked(version, folder):
    """One prefill and one decode worker with two ranks each."""
    fleet = fleets.disaggregated(version, folder / "fleet", prefill=1, decode=1, ranks=RANKS)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def router(ranked, module_router):
    return module_router(ranked)


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
def test_answers_come_from_the_pinned_ranks(router, stream):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: ask(router.url, chat(f"question {n}", stream=stream)), range(32)))
    for answer in answers:
        check_pair(answer)
    prefills = Counter(answer.pinned("prefill")[2] for answer in answers)
    decodes = Counter(answer.pinned("decode")[2] for answer in answers)
    assert sorted(prefills) == list(range(RANKS)), prefills
    assert sorted(decodes) == list(range(RANKS)), decodes


def test_a_rank_of_the_clients_is_not_obeyed(router):
    for rank in ("0", "1", "7"):
        headers = {"x-backend": "", "x-dynamo-dp-rank": rank, "x-dynamo-prefill-dp-rank": rank, "x-dp-rank": rank}
        body = chat(nvext={"dp_rank": int(rank)})
        # Side by side: one after the other they may all find the same rank the idler one.
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: ask(router.url, body, headers=headers), range(16)))
        for answer in answers:
            check_pair(answer)
        assert len({answer.pinned("decode")[2] for answer in answers}) == RANKS


def test_the_view_tells_the_ranks(router):
    for worker in router.workers()["workers"]:
        assert (worker["dp_start_rank"], worker["dp_size"]) == (0, RANKS)
