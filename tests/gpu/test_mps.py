"""A real MPS daemon in folders of its own: a client leaves it by terminate_client, and another
one works on. Changes no setting of the card; skipped where the compute mode forbids it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.mps import PROGRAM, Mps
from tests.gpu.conftest import MIB, Busy, capture
from tests.integration.hubs import wait_for


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"{PROGRAM} is not installed here")
    # The path of a socket has at most 107 characters.
    folder = Path("/tmp") / f"gpudeck-mps-{os.getpid()}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder))
    monkeypatch.setenv("CUDA_MPS_LOG_DIRECTORY", str(tmp_path))
    started = subprocess.run([PROGRAM, "-d"], capture_output=True, text=True, timeout=20,
                             check=False)
    if started.returncode:
        pytest.skip(f"no MPS daemon can be started here: {started.stderr.strip()[:120]}")
    try:
        yield folder
    finally:
        subprocess.run([PROGRAM], input="quit -t 10\n", text=True, timeout=60, check=False,
                       capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def ask(command: str) -> str:
    return subprocess.run([PROGRAM], input=command + "\n", capture_output=True, text=True,
                          timeout=30, check=False).stdout


def test_a_client_leaves_and_the_other_works_on(
    pipes: Path, busy: Callable[..., Busy]
) -> None:
    try:
        bystander, client = busy(128 * MIB), busy(128 * MIB)
    except pytest.fail.Exception as why:
        pytest.skip(f"MPS serves no client on this machine: {why}")
    mps = Mps(pipes=pipes)
    assert mps.trouble() == ""
    servers = ask("get_server_list").split()
    capture("mps", {"servers": len(servers),
                    "clients": [len(ask(f"get_client_list {each}").split()) for each in servers]})
    assert mps.terminate(client.pid) == ""
    client.close()
    went = bystander.rounds
    wait_for(lambda: bystander.rounds > went + 50, 30, "the bystander's work")
    assert bystander.process.poll() is None
    assert str(client.pid) not in "".join(ask(f"get_client_list {each}") for each in servers)
