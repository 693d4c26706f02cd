"""The fleet itself, without a router. When this fails, look at Dynamo and at the node first."""

from peers.ask import ask, chat
from peers.process import eventually

WORKER, PREFILL = "x-dynamo-worker-instance-id", "x-dynamo-prefill-instance-id"


def test_the_frontend_answers_from_the_pinned_pair(cluster, fleet):
    url = cluster.url(fleet.namespace, "frontend", 8000)
    ids = fleet.instances()
    for prefill in ids["prefill"]:
        for decode in ids["decode"]:

            def answered(pins):
                answer = ask(url, chat("hello"), pins)
                assert answer.ok, (answer.status, answer.text)
                return answer

            # The frontend lists a model a moment after its workers are ready.
            answer = eventually(lambda: answered({WORKER: str(decode), PREFILL: str(prefill)}), 30, "a pinned request is answered")
            assert (answer.used[0], answer.used[2]) == (prefill, decode)
