"""CPU seconds of each file's tests, with the processes that they start: which of them wait, and
which keep a core busy. Each worker notes them at the file's last test, tests/check.py adds them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.check import CPU_S

_FIELDS_BEFORE_TIMES = 11  # of /proc/PID/stat, counted after the name in brackets
_TICKS = os.sysconf("SC_CLK_TCK")


def ticks_of(process: int) -> int:
    """Return the clock ticks of a process, and of what it has started: those still there and, in
    its own counters, those that ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it ended meanwhile
        return 0
    own = sum(map(int, words[_FIELDS_BEFORE_TIMES:_FIELDS_BEFORE_TIMES + 4]))
    return own + sum(ticks_of(int(child)) for child in children)


class CpuTimes:
    """Plugin of a worker."""

    def __init__(self) -> None:
        self._before = ticks_of(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item,
                                nextitem: pytest.Item | None) -> Iterator[None]:
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                now = ticks_of(os.getpid())
                # What a test's own processes used and nobody waited for is in no counter any more.
                item.user_properties.append((CPU_S, max(0, now - self._before) / _TICKS))
                self._before = now


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") == "check":
        config.pluginmanager.register(CpuTimes())
