"""A plugin: tests named in quarantine.toml are run once more when they fail, for a week."""

import datetime as dt
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

TABLE = Path(__file__).with_suffix(".toml")
MOST = dt.timedelta(days=7)
TWICE = "run_twice"


@dataclass(frozen=True, slots=True)
class UnsteadyTest:
    id: str
    since: dt.date
    why: str

    def is_over(self, today: dt.date) -> bool:
        return today > self.since + MOST


def unsteady_tests(table: Path = TABLE) -> dict[str, UnsteadyTest]:
    rows = tomllib.loads(table.read_text()).get("test", [])
    return {row["id"]: UnsteadyTest(**row) for row in rows}


def today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


class Quarantine:
    def __init__(self, unsteady: dict[str, UnsteadyTest]) -> None:
        self._unsteady = unsteady

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None
                                ) -> bool | None:
        row = self._unsteady.get(item.nodeid)
        if row is None or row.is_over(today()):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if any(report.failed for report in reports):
            item.user_properties.append((TWICE, row.why))
            item._initrequest()  # type: ignore[attr-defined]  # fresh fixtures
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for report in terminalreporter.stats.get("passed", []):
            if report.when == "call" and TWICE in dict(report.user_properties):
                terminalreporter.line(f"RUN TWICE {report.nodeid}", yellow=True)


def pytest_configure(config: pytest.Config) -> None:
    table = Path(os.environ.get("GPUDECK_QUARANTINE", TABLE))
    config.pluginmanager.register(Quarantine(unsteady_tests(table)))
