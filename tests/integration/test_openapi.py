"""The OpenAPI document against the hub that serves it, by schemathesis."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.contract.pool_link import OfferedGpu, PoolReport
from tests.integration.hubs import HubProcess, WireAgent, one_task, wait_for

TOOL = (sys.executable, "-m", "schemathesis.cli")


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0, "--pool", "on", constants={
            "dashboard.pool.source_api.ALLOCATE_WITHIN_S": 0.05}) as hub:
        agent = WireAgent("n1", gpus=2)
        agent.connect(hub)
        agent.tick(one_task())
        agent.say(PoolReport(tuple(OfferedGpu(gpu.uuid, gpu.name, gpu.index)
                                   for gpu in agent.facts), (), ()))
        wait_for(lambda: hub.get("/api/v1/tasks")["items"], why="the task")
        wait_for(lambda: hub.get("/api/v1/gpu/status")["total_nodes"], why="the pool")
        yield hub
        assert "Traceback" not in hub.log.read_text()


# Apart: it revokes, sooner or later, the very token that asks.
@pytest.mark.parametrize(("which", "examples"), [
    ("--exclude-operation-id", 3), ("--include-operation-id", 10),
    pytest.param("--exclude-operation-id", 10, marks=pytest.mark.soak)])
def test_no_5xx_and_no_answer_that_is_not_documented(
    hub: HubProcess, tmp_path: Path, which: str, examples: int
) -> None:
    # A body over the limit is refused by its size alone, which the tool does not count as refused.
    (tmp_path / "schemathesis.toml").write_text(
        '[checks.negative_data_rejection]\nexpected-statuses = ["4xx"]\n')
    # A schema cannot say what a filter's grammar, a cursor, a good password or a moment is.
    run = subprocess.run(
        [*TOOL, "run", f"{hub.url}/api/v1/openapi.json", "-H",
         f"Authorization: Bearer {hub.api_token}", which, "remove_token",
         "--exclude-checks", "positive_data_acceptance", "--max-examples", str(examples),
         "--seed", os.environ["GPUDECK_TEST_SEED"],
         "--generation-database", "none", "--no-color"],
        cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert run.returncode == 0, run.stdout.partition("= FAILURES =")[2][:8_000] or run.stdout
