"""A task's age in a preview: the one that the pages show."""

import random
import time
from pathlib import Path

import pytest

from agent.actions.preview import age_of
from agent.tasks.processes import read_stat
from gpudeck.contract.wire import Task


def test_a_task_is_as_old_as_on_every_page() -> None:
    """The dialog said 119 s of a task that the page behind it had running for 6 h."""
    stat, at, old_s = read_stat(Path("/proc"), 1), time.time(), random.uniform(1e3, 1e5)
    assert stat is not None
    task = Task("t", 1, stat.start_ticks, at - old_s, None, None)
    assert age_of(task, at) == pytest.approx(old_s)
    undated = Task("t", 1, stat.start_ticks, None, None, None)
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 <= age_of(undated, at) <= uptime_s + 1
    assert age_of(Task("t", 1, 1, at + 5, None, None), at) == 0
