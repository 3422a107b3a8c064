"""A machine alone: no hub, no token, and its GPUs are queued for; it joins a hub later."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import settings as agent_settings
from gpudeck.errors import CommandError
from gpudeck.pool.connection import PoolConnection, new_socket, own_socket
from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.pools import ROOT, SAYS_ITS_GPUS, SAYS_ITS_UUID, WAITS, PoolBed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[PoolBed]:
    bed = PoolBed(None, tmp_path)
    yield bed
    bed.close()


def test_a_machine_without_a_hub_queues_its_gpus(bed: PoolBed) -> None:
    with bed.agent():
        run = bed.run("run", "--gpus", "2", "--", sys.executable, "-c",
                      f"{SAYS_ITS_GPUS}; raise SystemExit(7)")
        assert (run.returncode, len(run.stdout.split(","))) == (7, 2), run.stderr
        holder = bed.start("run", "--gpus", "3", "--", sys.executable, "-c", WAITS)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "on\n"
        later = bed.start("run", "--gpus", "2", "--", sys.executable, "-c", SAYS_ITS_UUID)
        wait_for(bed.in_queue(1), 30)
        top = bed.run("top", "--once")
        assert "1 of 4 matching are free" in top.stdout, top.stdout + top.stderr
        free = bed.run("free")
        assert (free.returncode, free.stdout.count(",")) == (0, 0), free.stderr
        assert bed.run("free", "--count", "2").returncode == 1
        claim = bed.run("claim", "--gpus", "1", "--export")
        assert "GPUDECK_LEASE=" in claim.stdout, claim.stderr
        [lease] = [lease["lease_id"] for lease in bed.status()["held"] if len(lease["uuids"]) == 1]
        assert bed.run("claim", "--give-back", lease).returncode == 0
        holder.terminate()
        assert later.communicate(timeout=60)[0].count("GPU-") == 2
        wait_for(lambda: bed.free() == 4, 30)


def test_it_joins_a_hub_later_and_loses_no_lease(bed: PoolBed, tmp_path: Path) -> None:
    with bed.agent():
        holder = bed.start("run", "--gpus", "1", "--", sys.executable, "-c", WAITS)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "on\n"
        [before] = bed.status()["held"]
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        bed.join(hub)
        with bed.agent():
            [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"], 60)
            [after] = bed.status()["held"]
            assert (lease["id"], after["lease_id"]) == (before["lease_id"], before["lease_id"])
            assert after["uuids"] == before["uuids"] == lease["gpus"]
            assert holder.poll() is None
            assert bed.run("run", "--gpus", "3", "--", "true").returncode == 0
            holder.terminate()
            wait_for(lambda: bed.free() == 4, 30)


def test_alone_again_it_calls_no_hub(bed: PoolBed, tmp_path: Path) -> None:
    """A node that has a hub keeps its key and its holds, and does not call while it is alone."""
    with HubProcess(tmp_path / "hub") as hub:
        bed.join(hub)
        with bed.agent():
            wait_for(lambda: hub.get("/api/v1/nodes")["items"], 60)
        bed.join(None)
        with bed.agent():
            [node] = hub.get("/api/v1/nodes")["items"]
            assert node["state"] != "live"
            assert bed.run("run", "--", "true").returncode == 0


@pytest.mark.parametrize("words", [("--hub", "http://127.0.0.1:1"), ("--token-file", "x"),
                                   ("--pipe",)])
def test_what_does_not_go_with_alone_is_said(words: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=f"leave {words[0]} out"):
        agent_settings.read(["--alone", *words], {"HOME": str(tmp_path)})


def test_without_a_folder_of_the_session_the_socket_is_in_the_users_own(tmp_path: Path) -> None:
    assert own_socket({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "gpudeck/pool.sock"
    env = {"XDG_RUNTIME_DIR": str(tmp_path / "none"), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert own_socket(env) == tmp_path / "state/gpudeck/pool.sock"


def test_of_two_agents_one_leases(bed: PoolBed, monkeypatch: pytest.MonkeyPatch,
                                  tmp_path: Path) -> None:
    monkeypatch.setattr("gpudeck.pool.connection.SYSTEM_SOCKET", str(bed.socket))
    assert new_socket({}) is not None  # none is there yet
    with bed.agent(), pytest.raises(CommandError, match="leases this machine's GPUs already"):
        new_socket({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_the_socket_of_a_dead_agent_hides_nobodys_own(
        bed: PoolBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dead, own = tmp_path / "dead.sock", tmp_path / "runtime/gpudeck/pool.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(dead))
    monkeypatch.setattr("gpudeck.pool.connection.SYSTEM_SOCKET", str(dead))
    env = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    own.parent.mkdir(parents=True)
    with pytest.raises(CommandError, match=r"dead\.sock \(Connection refused\): start one"):
        PoolConnection(env)
    own.symlink_to(bed.socket)
    with bed.agent():
        PoolConnection(env).close()


def test_up_with_a_pool_needs_nothing_more(bed: PoolBed, tmp_path: Path) -> None:
    """The hub decides, and nobody has to enrol anything."""
    words = "import sys; from dashboard.demo.up import up; up(sys.argv[1:])"
    with subprocess.Popen([sys.executable, "-c", words, "--pool", "--port", "0", "--data",
                           str(tmp_path / "up")], cwd=ROOT, env=bed.env, text=True,
                          stdout=subprocess.PIPE) as up:
        assert up.stdout is not None
        try:
            assert next(line for line in up.stdout if f"finds it at {bed.socket}" in line)
            wait_for(lambda: bed.free() == 4, 60)
            run = bed.run("run", "--gpus", "4", "--", sys.executable, "-c", SAYS_ITS_UUID)
            assert run.stdout.count("GPU-") == 4, run.stderr
            assert bed.status()["waiting"] == []
        finally:
            up.terminate()
