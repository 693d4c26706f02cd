"""Fixtures: one cluster, one real Dynamo fleet, one installation of the operator, shared by all tests of the run."""

import json

import pytest

from peers.kubectl import Cluster
from peers.pods import Fleet
from peers.release import EXAMPLE, Release, Routers


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.stop()


@pytest.fixture(scope="session")
def fleet(cluster):
    """Two prefill and two decode workers behind one direct-mode frontend."""
    found = Fleet(cluster, "1.6.1")
    found.install()
    found.workers("prefill", 2)
    found.workers("decode", 2)
    found.frontends(1)
    found.settle(prefill=2, decode=2, frontend=1)
    return found


@pytest.fixture(scope="session")
def release(cluster, fleet):
    """The operator, allowed to serve RouterConfigs where the fleet is."""
    found = Release(cluster)
    found.install("--set", f"watchNamespaces={{{fleet.namespace}}}")
    return found


@pytest.fixture(scope="session")
def routers(cluster, release):
    """The routers of the example, ready."""
    text = cluster.kubectl("apply", "-f", EXAMPLE, "-o", "json")
    meta = json.loads(text)["metadata"]
    found = Routers(cluster, meta["name"], meta["namespace"])
    cluster.kubectl("wait", "--for=condition=Ready", f"routerconfig/{found.name}", "-n", found.namespace, "--timeout=120s")
    return found


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """On a failure, show what the operator and the routers said last."""
    outcome = yield
    report = outcome.get_result()
    if report.passed:
        return
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, Routers):
            report.sections.append((f"routers of {value.name}", value.logs()))
            report.sections.append(("status", json.dumps(value.status(), indent=1)))
        if isinstance(value, Release):
            selector = "app.kubernetes.io/component=controller"
            report.sections.append(("controller", value.cluster.logs(value.namespace, selector)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """A run in which nothing was tested has not passed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
