"""Seed, tiers and order of a run: one seed for all workers, or their random values would name the
same tests differently; the tier of each test; and long files first, so that no worker ends on one
of them alone."""

import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.patience import HANGS_S
from tests.tiers import COLLECTED, ENGINES, may_hold, tier_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.fakes.hub import FakeHub

pytest_plugins = ("tests.cpu_time", "tests.quarantine")
SEED = os.environ.setdefault("GPUDECK_TEST_SEED", str(secrets.randbits(32)))
random.seed(int(SEED))  # for what is drawn when a file is imported

UMASK = os.umask(0o022)
os.umask(UMASK)

# How long an example takes says more of the machine, and of who else is on it, than of the code.
settings.register_profile("gpudeck", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpudeck")

# What mostly waits (the matrix, limits, services, features of a node) among what keeps a core busy.
LONGEST = (
    "faults/test_fault_matrix.py", "browser/test_fleet_page.py",
    "integration/test_limits_terminal.py", "browser/test_hostile_text.py",
    "browser/test_every_page.py", "integration/test_service_used.py",
    "browser/test_alerts_page.py", "browser/test_action_pages.py",
    "integration/test_node_features.py", "browser/test_history_page.py", "unit/test_bench.py",
    "browser/test_settings_page.py", "browser/",  # together: they share a demo, which goes on
    "faults/test_theft.py", "faults/test_pool_sixty.py", "integration/test_pool_order.py",
    "integration/test_pool_run.py",
    "unit/dashboard/alerts/", "integration/test_openapi.py", "integration/test_make_demo.py",
    "notebook/", "faults/", "integration/test_audit_agent.py", "integration/test_actions.py",
    "integration/test_thefts.py", "integration/test_transport.py", "integration/test_wheel.py",
    "integration/test_demo.py", "integration/test_history.py", "integration/test_terminal_fleet.py",
    "unit/dashboard/automation/", "unit/dashboard/history/",
)


@pytest.fixture(scope="module", autouse=True)
def umask() -> None:
    """Give each file's tests the umask of before: a hub that ran in this process has left its own,
    and a machine whose folders are made with that does not boot for anybody but root."""
    os.umask(UMASK)


@pytest.fixture
def hub() -> "Iterator[FakeHub]":
    """Fake hub for tests of the agent; tests of the hub have a real one under this name."""
    from tests.fakes.hub import FakeHub  # a server: not for each worker of the unit tests

    hub = FakeHub()
    yield hub
    hub.close()


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Browser of a worker, shared by its tests: a process can run only one Playwright."""
    from playwright.sync_api import expect, sync_playwright

    from tests import chromium
    from tests.patience import GIVE_UP_MS

    path = chromium.required()
    expect.set_options(timeout=GIVE_UP_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        running.on("context", lambda context: context.set_default_timeout(GIVE_UP_MS))
        yield running
        running.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed by the name of the test, so that it draws the same alone as among others."""
    random.seed(f"{SEED} {item.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that hangs: others wait behind it, and nobody learns which it was. The signal
    interrupts a read of a pipe, as it does everything else of the main thread."""
    if item.get_closest_marker("soak") or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        return (yield)

    def hangs(number: int, frame: object) -> None:
        raise TimeoutError(f"it hangs: {HANGS_S} s")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def pytest_report_header() -> str:
    return f"random values: GPUDECK_TEST_SEED={SEED}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a test of the tier: each worker collects for itself, which costs as much
    as many of the tests."""
    tier = config.getoption("markexpr")
    if tier not in ("test", "check") or not collection_path.name.startswith("test_"):
        return None
    file = collection_path.relative_to(config.rootpath).as_posix()
    return None if may_hold(file, tier) else True


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    counts = config.stash[COLLECTED] = Counter(all=len(items))
    for item in items:
        tier = tier_of(item.nodeid, item.get_closest_marker("soak") is not None)
        counts[tier] += 1
        item.add_marker(tier)
        if item.nodeid.startswith(ENGINES):
            item.add_marker("engines")
    items.sort(key=_rank)  # stable: the order within a file stays


def _rank(item: pytest.Item) -> int:
    name = item.nodeid.removeprefix("tests/")
    return next((at for at, prefix in enumerate(LONGEST) if name.startswith(prefix)), len(LONGEST))
