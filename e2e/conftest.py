"""Fixtures: one run of pytest tests one version of Dynamo. Fleets are shared by the tests of a topology and stopped as soon as possible."""

import re
import subprocess

import pytest

from peers import fleet as fleets
from peers.router import Router, config_for

LATEST = "1.6.1"


def pytest_addoption(parser):
    parser.addoption("--dynamo", default=LATEST, help="the Dynamo version to test against")


def pytest_report_header(config):
    return f"dynamo: {config.getoption('--dynamo')}"


def pytest_collection_modifyitems(config, items):
    version = config.getoption("--dynamo")
    kept, dropped = [], []
    for item in items:
        mark = item.get_closest_marker("versions")
        (kept if mark is None or version in mark.args else dropped).append(item)
    # Not run, rather than skipped: a skipped test means that something is missing on this machine.
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def pytest_sessionstart(session):
    """Versions before 1.6 publish on the machine's outward address: refuse to run them where there is one."""
    version = session.config.getoption("--dynamo")
    if tuple(int(part) for part in version.split(".")[:2]) >= (1, 6):
        return
    shown = subprocess.run(["ip", "-o", "addr", "show", "scope", "global"], capture_output=True, text=True, check=False)
    if shown.returncode == 0 and shown.stdout.strip():
        pytest.exit(f"Dynamo {version} must run in a network namespace with the loopback device alone: use scripts/e2e.sh", returncode=2)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """On a failure, show the end of each router's and frontend's log."""
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, Router) and value.process:
            report.sections.append((f"{value.name} log", value.process.tail()))
        if isinstance(value, fleets.Fleet):
            for frontend in value.frontends:
                report.sections.append((f"{frontend.process.name} log", frontend.process.tail(10)))


@pytest.fixture(scope="session")
def version(request):
    return request.config.getoption("--dynamo")


@pytest.fixture(scope="session")
def old(version):
    """Versions before 1.6 differ in several answers."""
    return version != LATEST


@pytest.fixture(scope="module")
def folder(tmp_path_factory, request):
    return tmp_path_factory.mktemp(request.module.__name__)


@pytest.fixture(scope="session")
def disagg(version, tmp_path_factory):
    """Two prefill and two decode workers behind one frontend, shared by the tests that leave them alone."""
    fleet = fleets.disaggregated(version, tmp_path_factory.mktemp("disagg"))
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def agg(version, folder):
    """Two aggregated workers behind one frontend."""
    fleet = fleets.aggregated(version, folder / "fleet")
    yield fleet
    fleet.stop()


class Starter:
    """Starts routers in front of fleets, one for each set of arguments, and stops them all."""

    def __init__(self, folder):
        self._folder = folder
        self._started = []

    def __call__(self, fleet, change=None, **settings):
        """`change` may edit the configuration before the start; `settings` go to `config_for`."""
        config = config_for(fleet, **settings)
        if change:
            change(config)
        router = Router(config, self._folder, f"router{len(self._started)}")
        self._started.append(router)
        return router.settle(fleet)

    def stop(self):
        for router in self._started:
            router.stop()


@pytest.fixture
def routers(folder, request):
    """Starts routers that live as long as the test: `routers(fleet)`."""
    starter = Starter(folder / re.sub(r"\W+", "-", request.node.name))
    yield starter
    starter.stop()


@pytest.fixture(scope="module")
def module_router(folder):
    """Starts routers that live as long as the module."""
    starter = Starter(folder)
    yield starter
    starter.stop()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """A run in which nothing was tested has not passed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
