"""CPUs and memory of the node in a lease: counted, and its command held to them where the kernel
can. Real commands, cores and control groups."""

import getpass
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudeck.contract import pool_messages as messages
from gpudeck.contract.pool_messages import AskClaim
from gpudeck.pool.core.host_resources import FreeHost
from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.pools import PoolBed, PoolUnderTest
from tests.integration.test_pool_ends import answer
from tests.integration.test_pool_hub import post

CORES = sorted(os.sched_getaffinity(0))
GIB = 2**30
# Itself, and what it starts.
SAYS_ITS_CORES = ("import os, subprocess, sys, time; print(sorted(os.sched_getaffinity(0)), "
                  "flush=True); subprocess.run([sys.executable, '-c', 'import os; "
                  "print(sorted(os.sched_getaffinity(0)), flush=True)']); time.sleep(600)")
TAKES_MEMORY = "data = bytearray(400 << 20); print(len(data), flush=True)"
# Moves what it is told to into a group of the name and the size it is told, as systemd does.
BUSCTL = """#!/bin/sh
for word; do case $word in gpudeck-*.scope) group=$GROUP_OF_TEST/$word;; esac; done
while [ "$1" != PIDs ]; do shift; done
pid=$4; shift 7
[ "$1 $2" = "MemoryMax t" ] || exit 1
mkdir -p "$group" && echo "$3" > "$group/$LIMIT_OF_TEST" && echo "$pid" > "$group/cgroup.procs"
"""
GROUPS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
          (Path("/sys/fs/cgroup"), "memory.max"))

needs_cores = pytest.mark.skipif(len(CORES) < 2 or len(CORES) != os.cpu_count(),
                                 reason="it takes two cores, and all of the machine")


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[PoolBed]:
    bed = PoolBed(None, tmp_path)
    yield bed
    bed.close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolUnderTest]:
    pool = PoolUnderTest(tmp_path)
    assert pool.service.snapshot is not None
    pool.service.snapshot = replace(pool.service.snapshot, host=FreeHost(8_000, 64 * GIB))
    yield pool
    pool.close()


def cores_of(run: "subprocess.Popen[str]") -> set[int]:
    """Return the cores of the command, which are also those of what it started."""
    assert run.stdout is not None
    own, of_child = run.stdout.readline(), run.stdout.readline()
    assert own == of_child
    return {int(core) for core in re.findall(r"\d+", own)}


def is_counted(bed: PoolBed) -> bool:
    return bool(bed.status().get("left_words"))


@needs_cores
def test_two_commands_have_cores_of_their_own_also_after_a_restart(bed: PoolBed) -> None:
    words = ("run", "--cpus", "1", "--", sys.executable, "-c", SAYS_ITS_CORES)
    with bed.agent():
        wait_for(lambda: is_counted(bed), 30)
        most = len(CORES) - 1
        first = bed.start("run", "--cpus", str(most), *words[3:])
        cores = cores_of(first)
        assert len(cores) == most
    with bed.agent():
        wait_for(lambda: is_counted(bed), 30)
        second = bed.start(*words)
        other_cores = cores_of(second)
        assert (cores & other_cores, cores | other_cores) == (set(), set(CORES))
        third = bed.run("run", "--no-wait", *words[1:])
        assert third.returncode == 10
        assert f"it needs 1 CPU, 0 of {len(CORES)} are not allocated" in third.stderr
        listing = bed.run("pool")
        assert f"1 CPU (cores {other_cores.pop()})" in listing.stdout
        assert f"0 of {len(CORES)} CPUs, " in listing.stdout
        first.terminate()
        wait_for(lambda: len(bed.status()["held"]) == 1, 30)
        assert cores_of(bed.start(*words)) <= cores


def test_more_than_the_machine_has_is_refused_at_once(bed: PoolBed) -> None:
    with bed.agent():
        wait_for(lambda: is_counted(bed), 30)
        run = bed.run("run", "--ram", "900T", "--", "true")
        assert run.returncode == 10
        assert "no node here has such GPUs and 9.216e+05 GiB of memory; the largest has" in (
            run.stderr)


@pytest.fixture
def scopes(pool: PoolUnderTest, tmp_path: Path) -> Iterator[Path]:
    """The folder where the user's systemd makes groups whose memory is limited."""
    for folder, limit in GROUPS:
        group = folder / f"gpudeck-test{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            break
        group.rmdir()
    else:
        pytest.skip("no group with a limit can be made here")
    (tmp_path / "busctl").write_text(BUSCTL)
    (tmp_path / "busctl").chmod(0o755)
    (tmp_path / "bus").touch()
    pool.env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(tmp_path),
                 "GROUP_OF_TEST": str(group), "LIMIT_OF_TEST": limit}
    yield group
    for path in (*group.glob("*.scope"), group):
        path.rmdir()


def test_in_a_scope_a_command_gets_no_more_memory_than_it_asked_for(
        pool: PoolUnderTest, scopes: Path) -> None:
    takes = ("--", sys.executable, "-c", TAKES_MEMORY)
    enough = answer(pool, "run", "--ram", "1G", *takes)
    assert (enough.returncode, enough.stderr) == (0, "")
    too_much = answer(pool, "run", "--ram", "200M", *takes)
    assert (too_much.returncode, too_much.stdout) == (128 + signal.SIGKILL, "")
    run = pool.start("run", "--ram", "1G", "--", "sh", "-c", "echo; exec sleep 600")
    assert run.stdout is not None
    run.stdout.readline()
    [lease] = pool.leases.all.values()
    assert lease.limits == ("ram",)
    assert "1 GiB of memory (at most)" in answer(pool, "pool").stdout
    run.terminate()
    run.communicate()


# As one that is older: it says neither how many CPUs nor how much memory there is.
COUNTS_NOTHING = '''
import agent.pool.node_pool
from agent.cli.main import agent as run
from gpudeck.errors import run_as_program
agent.pool.node_pool.free_host = lambda numbers, before: before
run_as_program(run)
'''
COUNTED = "counted, so that no other lease gets them, but nothing limits what runs here to them"


def test_where_nothing_limits_it_its_owner_reads_so(pool: PoolUnderTest) -> None:
    pool.env.pop("XDG_RUNTIME_DIR", None)
    run = answer(pool, "run", "--cpus", "1", "--ram", "1G", "--", "true")
    assert (run.returncode, run.stderr) == (0, f"gpudeck: 1 GiB of memory: {COUNTED}\n")
    claim = answer(pool, "claim", "--cpus", "8", "--ram", "60G")
    assert f"8 CPUs and 60 GiB of memory: {COUNTED}" in claim.stderr
    listing = answer(pool, "pool").stdout
    assert "8 CPUs (only counted), 60 GiB of memory (only counted)" in listing
    assert "0 of 8 CPUs, 4 of 64 GiB of memory not allocated" in listing
    assert "it needs 5 GiB of memory, 4 of 64 GiB are not allocated" in answer(
        pool, "run", "--ram", "5G", "--no-wait", "--", "true").stderr


# Without host memory, as agents before 0.2 have it.
OLDER_CLAIM = msgspec.defstruct("OlderClaim", [
    (field.name, field.type) if field.required else (field.name, field.type, field.default)
    for field in msgspec.structs.fields(AskClaim) if field.name != "ram_bytes"],
    tag="claim", forbid_unknown_fields=True)


def test_an_older_agent_of_the_node_is_asked_once_and_its_user_reads_why(
        pool: PoolUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_from_user", msgspec.msgpack.Decoder(OLDER_CLAIM))
    run = answer(pool, "run", "--ram", "1G", "--", "true")
    assert run.returncode == 10
    assert "the agent is older than this command and does not know what" in run.stderr
    assert "`ram_bytes`" in run.stderr


def test_a_program_that_holds_them_itself_reads_it_too(pool: PoolUnderTest) -> None:
    program = subprocess.run(
        [sys.executable, "-c", "from gpudeck.pool.claim import claim\n"
         "with claim(ram='2G', cpus=2) as lease: print(len(lease.gpus))"], env=pool.env, text=True,
        capture_output=True, timeout=60, check=False)
    assert (program.returncode, program.stdout) == (0, "1\n"), program.stderr
    assert f"2 CPUs and 2 GiB of memory: {COUNTED}" in program.stderr


def test_an_agent_that_counts_neither_is_passed_over_and_the_claim_says_so(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        bed = PoolBed(hub, tmp_path)
        request: dict[str, Any] = {"owner": getpass.getuser(), "ram_bytes": "1G"}
        try:
            with bed.agent(("-c", COUNTS_NOTHING)):
                [node] = wait_for(lambda: hub.get("/api/v1/pool/nodes")["items"], 60)
                assert post(hub, "claims", request).status == 201
                why = f"memory is not counted on {node['host']}: the agent there is older than 0.2"
                wait_for(lambda: [claim for claim in hub.get("/api/v1/claims")["items"]
                                  if claim["why"].startswith(why)], 60)
                valid = hub.ask("/api/v1/gpu/validate", "POST", body=b'{"cpus": 1}',
                                Content_Type="application/json").json
                assert (valid["valid"], valid["reason"].partition(" are")[0]) == (False, "CPUs")
                assert post(hub, "claims", {"owner": getpass.getuser()}).status == 201
                [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"], 60)
                assert lease["ram_bytes"] is None
            with bed.agent():  # brought up to date
                wait_for(lambda: {row["ram_bytes"] for row in hub.get("/api/v1/leases")["items"]}
                         == {None, 2**30}, 60)
        finally:
            bed.close()


def test_a_hub_counts_them_and_says_how_they_are_held(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        bed = PoolBed(hub, tmp_path)
        try:
            with bed.agent():
                wait_for(lambda: is_counted(bed), 60)
                wait_for(lambda: hub.get("/api/v1/pool")["nodes"], 60)
                request: dict[str, Any] = {"ram_bytes": "1M", "cpus": 1, "owner": getpass.getuser()}
                assert post(hub, "claims", request).status == 201
                [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"], 60)
                assert (lease["cpus"], lease["ram_bytes"], lease["host_words"]) == (
                    1, 2**20, "1 CPU (only counted), 1 MiB of memory (only counted)")
                run = bed.start("run", "--cpus", str(len(CORES)), "--", "true")
                why = (f"it needs {len(CORES)} CPUs, {len(CORES) - 1} of {len(CORES)} are not "
                       "allocated")
                wait_for(lambda: [claim for claim in hub.get("/api/v1/claims")["items"]
                                  if why in claim["why"]], 60)
                bad = post(hub, "claims", {**request, "ram_bytes": "900"})
                assert "ram_bytes: '900' is not a size" in bad.json["detail"]
                run.terminate()
        finally:
            bed.close()
