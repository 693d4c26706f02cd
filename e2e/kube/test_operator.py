"""The operator from `helm install` to `helm uninstall`, in the order in which a user meets it. Each test leaves routers that serve."""

import time

import pytest

from peers.ask import Traffic, ask, chat, check_pair
from peers.kubectl import is_ready
from peers.process import eventually
from peers.release import KIND, kill_container

CONDITIONS = ("Accepted", "ResourcesApplied", "FleetSynced", "RoutersReady", "ShimReachable", "Ready")


def question(thread, count):
    return chat(f"thread {thread} question {count}", stream=thread % 2 == 0, max_tokens=16)


def pairs(routers, count):
    """Asks `count` times; each answer must come from the pinned pair. Returns the pairs."""
    return [check_pair(ask(routers.url, chat(f"question {n}"))) for n in range(count)]


def settled(routers, prefill, decode, seconds=60):
    """Waits until the status tells these ready workers."""

    def check():
        workers = routers.status()["fleet"]["workers"]
        assert (workers["prefill"]["ready"], workers["decode"]["ready"]) == (prefill, decode), workers
        return True

    eventually(check, seconds, f"the status tells {prefill} prefill and {decode} decode workers")


def all_good(answers):
    """Every answer came from the pair that the router pinned."""
    assert answers
    for answer in answers:
        check_pair(answer)


def test_ready_is_safe_to_wait_for(cluster, routers):
    """`kubectl wait` has returned: the very next request is answered, and the status tells the fleet."""
    check_pair(ask(routers.url, chat("first")))
    for kind in CONDITIONS:
        assert routers.condition(kind)[0] == "True", (kind, routers.condition(kind))
    assert routers.condition("Degraded")[0] == "False", routers.condition("Degraded")
    settled(routers, 2, 2)
    status = routers.status()
    assert status["observedGeneration"] == routers.read()["metadata"]["generation"]
    assert status["url"]
    shown = cluster.kubectl("get", "routerconfigs", routers.name, "-n", routers.namespace)
    assert "True" in shown, shown


def test_requests_reach_the_pinned_workers(fleet, routers):
    ids = fleet.instances()
    used = pairs(routers, 24)
    assert {prefill for prefill, _ in used} == ids["prefill"]
    assert {decode for _, decode in used} == ids["decode"]


def test_pushed_views_need_no_rights(cluster, routers):
    """A router that is told its view holds nothing that the API server would accept."""
    account = f"system:serviceaccount:{routers.namespace}:{routers.children}"
    for verb, what in [("list", "pods"), ("get", "dynamoworkermetadatas.nvidia.com"), ("list", "endpointslices"), ("get", "secrets")]:
        answer = cluster.kubectl("auth", "can-i", verb, what, "-n", routers.namespace, "--as", account, check=False)
        assert answer.startswith("no"), (verb, what, answer)
    assert cluster.items("rolebindings", routers.namespace, f"app.kubernetes.io/instance={routers.name}") == []
    pod = routers.pods(routers.read()["spec"].get("router", {}).get("replicas", 2))[0]
    mounts = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    assert "/var/run/secrets/kubernetes.io/serviceaccount" not in mounts


def test_helm_test_passes(release, routers):
    assert "Succeeded" in release.test()


def test_a_status_without_news_is_not_written(routers):
    before = routers.read()["metadata"]["resourceVersion"]
    time.sleep(12)
    assert routers.read()["metadata"]["resourceVersion"] == before


def test_workers_come_and_go_under_traffic(fleet, routers):
    with Traffic(routers.url, question) as traffic:
        traffic.wait_for(20)
        fleet.workers("decode", 3)
        ids = fleet.settle(prefill=2, decode=3)
        settled(routers, 2, 3)
        eventually(
            lambda: ask(routers.url, chat("who")).pinned("decode")[1] in ids["decode"] and _used(routers, ids), 60,
            "the new worker is used",
        )
        traffic.wait_for(20)
        all_good(traffic.stop())
    # A worker that is asked to end drains by itself; what it had begun may break with it, new requests must not.
    fleet.scale("decode", 2)
    ids = fleet.settle(prefill=2, decode=2)
    settled(routers, 2, 2)
    assert {decode for _, decode in pairs(routers, 12)} == ids["decode"]


def _used(routers, ids):
    """Whether a dozen requests use every decode worker."""
    answers = [ask(routers.url, chat(f"again {n}")) for n in range(12)]
    return {answer.pinned("decode")[1] for answer in answers if answer.ok} == ids["decode"]


def test_a_fleet_without_decode_workers_is_told(fleet, routers):
    fleet.scale("decode", 0)
    routers.wait("Degraded", "True", seconds=60)
    fleet.scale("decode", 2)
    fleet.settle(prefill=2, decode=2)
    routers.wait("Degraded", "False", seconds=60)
    routers.wait()


def test_a_lost_frontend_is_told(fleet, routers):
    fleet.scale("frontend", 0)
    routers.wait("ShimReachable", "False", seconds=90)
    fleet.scale("frontend", 1)
    fleet.pods("frontend", 1)
    routers.wait("ShimReachable", "True", seconds=90)
    routers.wait()
    eventually(lambda: check_pair(ask(routers.url, chat("back"))), 60, "requests are answered again")


def test_rolling_the_routers_loses_nothing(routers):
    count = len(routers.cluster.items("pods", routers.namespace, routers.selector))
    before = {pod["metadata"]["uid"] for pod in routers.pods(count)}
    with Traffic(routers.url, question) as traffic:
        traffic.wait_for(20)
        routers.patch(router={"podTemplate": {"metadata": {"annotations": {"e2e/rolled": str(time.time())}}}})
        eventually(
            lambda: not before & {pod["metadata"]["uid"] for pod in routers.pods(count)}, 180, "every router pod is a new one"
        )
        routers.wait("RoutersReady")
        traffic.wait_for(20)
        all_good(traffic.stop())
    routers.wait()


def test_a_config_change_rolls_no_pod(routers):
    count = len(routers.cluster.items("pods", routers.namespace, routers.selector))
    before = {pod["metadata"]["uid"] for pod in routers.pods(count)}
    routers.patch(config={"server": {"max_in_flight": 1234}})
    routers.wait("RoutersReady")
    assert {pod["metadata"]["uid"] for pod in routers.pods(count)} == before
    routers.wait()


def test_requests_go_on_without_a_controller(release, routers):
    """No controller at all: routers route on; one that starts again does so from its ConfigMap and the view that it has kept."""
    count = len(routers.cluster.items("pods", routers.namespace, routers.selector))
    pods = routers.pods(count)
    release.scale(0)
    try:
        with Traffic(routers.url, question) as traffic:
            traffic.wait_for(60)
            all_good(traffic.stop())
        kill_container(pods[0])
        victim = pods[0]["metadata"]["name"]

        def restarted():
            pod = routers.cluster.read("pod", victim, routers.namespace)
            return is_ready(pod) and pod["status"]["containerStatuses"][0]["restartCount"] >= 1

        eventually(restarted, 60, "the killed router is ready again, without a controller")
        pairs(routers, 8)
    finally:
        release.scale(1)
    routers.wait()


def test_the_leader_is_replaced(fleet, release, routers):
    release.scale(2)
    leader = eventually(release.leader, 30, "somebody leads")
    with Traffic(routers.url, question) as traffic:
        traffic.wait_for(10)
        routers.cluster.kubectl("delete", "pod", "-n", release.namespace, leader, "--grace-period=0", "--force")
        eventually(lambda: release.leader() not in (None, leader), 60, "somebody else leads")
        fleet.workers("prefill", 3)
        fleet.settle(prefill=3, decode=2)
        settled(routers, 3, 2)
        traffic.wait_for(10)
        all_good(traffic.stop())
    fleet.scale("prefill", 2)
    fleet.settle(prefill=2, decode=2)
    release.scale(1)
    routers.wait()


@pytest.mark.parametrize("version", ["1.4.2"])
def test_an_older_dynamo(cluster, fleet, routers, version):
    """The same routers before workers of another release."""
    try:
        for component in ("prefill", "decode", "frontend"):
            fleet.scale(component, 0)
        for component in ("prefill", "decode", "frontend"):
            fleet.pods(component, 0)
        current, fleet.version = fleet.version, version
        _start(fleet)
        routers.wait()
        pairs(routers, 8)
    finally:
        fleet.version = current
        _start(fleet)
    routers.wait()


def _start(fleet):
    fleet.workers("prefill", 2)
    fleet.workers("decode", 2)
    fleet.frontends(1)
    fleet.settle(prefill=2, decode=2, frontend=1)


def test_a_deleted_routerconfig_leaves_nothing(cluster, routers):
    cluster.kubectl("delete", KIND, routers.name, "-n", routers.namespace, "--timeout=60s")
    kinds = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,roles,rolebindings"

    def gone():
        left = cluster.items(kinds, routers.namespace, f"app.kubernetes.io/instance={routers.name}")
        assert not left, [(each["kind"], each["metadata"]["name"]) for each in left]
        return True

    eventually(gone, 60, "every child is gone")
    routers.pods(0)


def test_an_uninstalled_operator_leaves_the_kind(cluster, release):
    release.uninstall()
    release.pods(0)
    assert cluster.kubectl("get", "crd", KIND, check=False).startswith("NAME")
