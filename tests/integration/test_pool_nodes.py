"""`gpudeck run --nodes`: GPUs of two nodes for one run, all at once or none. Real hub, two real
agents, and an ssh that finds the other one on this machine."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.pools import WAITS, PoolBed

SAYS = ("import json, os; print(json.dumps({name: os.environ.get(name, '') for name in ("
        "'GPUDECK_NODE_RANK', 'PET_NNODES', 'MASTER_ADDR', 'MASTER_PORT', 'GPUDECK_GPU_UUIDS')}), "
        "flush=True)")
# Two nodes on one machine: each sees the other's ranks with the mark of the lease that both have.
UNMARKED = ("env", "-u", "GPUDECK_LEASE", sys.executable, "-c")
SSH = """#!/bin/sh
[ "$1" = -tt ] && shift
export GPUDECK_POOL_SOCKET={folder}/$1/pool.sock
shift
exec sh -c "$*"
"""
GPUDECK = '#!/bin/sh\nexec {python} -m gpudeck.cli.main "$@"\n'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        yield hub


@pytest.fixture
def beds(hub: HubProcess, tmp_path: Path) -> Iterator[list[PoolBed]]:
    for name, text in (("ssh", SSH.format(folder=tmp_path)),
                       ("gpudeck", GPUDECK.format(python=sys.executable))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    beds = []
    for name in ("n1", "n2"):
        (tmp_path / name).mkdir()
        bed = PoolBed(hub, tmp_path / name, "--host", name)
        bed.env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        beds.append(bed)
    with beds[0].agent(), beds[1].agent():
        wait_for(lambda: hub.get("/api/v1/pool")["nodes"] == 2)
        assert hub.ask("/api/v1/pool/policy", "PUT", body=b'{"several_nodes": true}',
                       Content_Type="application/json").status == 200
        yield beds
        for bed in beds:
            bed.close()


def test_its_ranks_have_gpus_of_their_own_nodes_and_one_meeting_point(
        hub: HubProcess, beds: list[PoolBed]) -> None:
    run = beds[0].run("run", "--nodes", "2", "--gpus", "3", "--distributed", "--ssh", "--",
                      *UNMARKED, SAYS)
    assert run.returncode == 0, run.stderr
    ranks = sorted((json.loads(line) for line in run.stdout.splitlines()),
                   key=lambda rank: rank["GPUDECK_NODE_RANK"])
    assert [(rank["GPUDECK_NODE_RANK"], rank["PET_NNODES"], rank["MASTER_ADDR"]) for rank in ranks
            ] == [("0", "2", "n1"), ("1", "2", "n1")]
    assert len({rank["MASTER_PORT"] for rank in ranks}) == 1
    for rank, bed in zip(ranks, beds, strict=True):
        uuids = set(rank["GPUDECK_GPU_UUIDS"].split(","))
        assert len(uuids) == 3
        assert uuids <= {gpu.uuid for gpu in bed.nvml.gpus}
    wait_for(lambda: not hub.get("/api/v1/leases")["items"])


def test_it_waits_for_all_of_them_and_all_go_back_with_it(hub: HubProcess, beds: list[PoolBed]
                                                          ) -> None:
    here, there = beds
    first = there.start("run", "--gpus", "2", "--", sys.executable, "-c", WAITS)
    assert first.stdout is not None
    first.stdout.readline()
    never = here.run("run", "--nodes", "2", "--gpus", "3", "--no-wait", "--", "true")
    assert (never.returncode, "in time" in never.stderr) == (10, True), never.stderr
    run = here.start("run", "--nodes", "2", "--gpus", "3", "--", *UNMARKED, WAITS)
    [claim] = wait_for(lambda: hub.get("/api/v1/claims")["items"])
    assert "on each of 2 nodes" in claim["why"]
    assert len(hub.get("/api/v1/leases")["items"]) == 1, "of one node alone it takes nothing"
    first.terminate()
    assert run.stdout is not None
    assert run.stderr is not None
    assert run.stdout.readline() == "on\n"
    hint = next(line for line in run.stderr if "its GPUs on n2 are leased" in line)
    assert "gpudeck run --lease" in hint
    assert len(hub.get("/api/v1/leases")["items"]) == 2
    run.terminate()  # before anybody has started the other rank
    wait_for(lambda: not hub.get("/api/v1/leases")["items"])
