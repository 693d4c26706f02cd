"""Fixtures: one run of pytest tests one version of Dynamo. Fleets are shared by the tests of a topology and stopped as soon as possible."""

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


@pytest.fixture(scope="module")
def disagg(version, folder):
    """Two prefill and two decode workers behind one frontend."""
    fleet = fleets.disaggregated(version, folder / "fleet")
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def agg(version, folder):
    """Two aggregated workers behind one frontend."""
    fleet = fleets.aggregated(version, folder / "fleet")
    yield fleet
    fleet.stop()


@pytest.fixture
def routers(folder, request):
    """Starts routers in front of a fleet; stops them at the end of the test. `routers(fleet, change)` lets `change` edit the configuration."""
    started = []

    def start(fleet, change=None, **settings):
        config = config_for(fleet, **settings)
        if change:
            change(config)
        router = Router(config, folder / request.node.name, f"router{len(started)}")
        started.append(router)
        return router.settle(fleet)

    yield start
    for router in started:
        router.stop()
