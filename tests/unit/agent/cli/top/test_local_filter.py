"""The filter language means the same on one machine as on the hub."""

import msgspec
import pytest

from agent.top.local_filter import matching
from dashboard.fleet.available_gpus import reasons
from dashboard.fleet.fleet import GpuStatus
from dashboard.fleet.views import gpu_view
from gpudeck.errors import CommandError
from tests.unit.dashboard.fleet.test_filters import CASES, make
from tests.unit.fleets import MONO, task_views


@pytest.mark.parametrize(("text", "names"), [("", {"a0", "a1", "a2", "a3", "b0"}), *CASES])
def test_it_matches_what_the_hub_matches(text: str, names: set[str]) -> None:
    fleet = make()
    show = fleet.statuses(MONO)
    codes = reasons(fleet, show, MONO)
    gpus = [msgspec.to_builtins(
        gpu_view(fleet, slot, GpuStatus(show[slot]), int(codes[slot]), [], MONO))
        for slot in range(len(fleet))]
    tasks = [msgspec.to_builtins(task) for task in task_views(fleet)]
    hits = {uuid.removeprefix("GPU-").replace("-", "") for uuid in matching(gpus, tasks, text)[0]}
    assert hits == names


@pytest.mark.parametrize("text", ["utl<5", "state:buzy", "(util<5", "x" * 1_001])
def test_a_mistake_is_named(text: str) -> None:
    with pytest.raises(CommandError, match="filter"):
        matching([], [], text)
