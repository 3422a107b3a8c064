"""The real agent asks a rank of a job that looks stuck, and its hub hears which one the others wait
for; a job that works is never asked."""

from pathlib import Path

import pytest
from msgspec import UNSET

from gpudeck.contract.collectives import CollectiveSample
from gpudeck.contract.hosts import HostSample
from tests.fakes.hub import FakeHub, wait_for
from tests.fakes.nccl_ras import communicator, rank, status
from tests.fakes.nvml import FakeNvml
from tests.ports import free_port
from tests.unit.agent.hosts.test_collectives import ras_rank

from .test_agent_process import an_agent, flags, frames

WITHIN_S = 90.0


def samples(hub: FakeHub) -> list[CollectiveSample]:
    hosts = [frame.host for frame in frames(hub) if isinstance(frame.host, HostSample)]
    return [] if not hosts or hosts[-1].collectives is UNSET else [*hosts[-1].collectives]


@pytest.mark.soak
def test_the_hub_hears_which_rank_the_others_wait_for(tmp_path: Path) -> None:
    hub, port, path = FakeHub(), free_port(), tmp_path / "state"
    path.write_text(status(communicator([rank(0, 41), rank(1, 42, pid=9)])))
    nvml = FakeNvml(tmp_path / "nvml.txt", gpus=0)
    board = nvml.gpu(util=100, power_mw=90_000, power_limit_mw=700_000, mem_util=0)
    with ras_rank(path, port, NCCL_RAS_ADDR=f"localhost:{port}") as pid:
        board.process(pid, 2**30, sm_pct=100)
        nvml.save()
        with an_agent(*flags(hub, tmp_path), "--nccl-ras", env=nvml.env()):
            wait_for(lambda: any(sample.behind for sample in samples(hub)), WITHIN_S)
            [sample] = samples(hub)
            assert [(one.rank, one.pid) for one in sample.behind] == [(0, pid)]
            assert str(pid) in sample.task_id
            board["util"] = 40
            board["power_mw"] = 600_000
            nvml.save()
            wait_for(lambda: not samples(hub), WITHIN_S)
    hub.close()
