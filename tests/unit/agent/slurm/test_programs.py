"""Programs in the place of Slurm's that hang, print without end, or fail."""

import os
import time
from pathlib import Path

import pytest

from agent.slurm.programs import SlurmError, SlurmPrograms, run_program


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def children_of(word: str) -> list[str]:
    pids = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and word in (folder / "cmdline").read_text():
                pids.append(folder.name)
        except OSError:
            continue
    return pids


def test_one_that_hangs_is_ended_with_its_children(programs: Path) -> None:
    mark = f"600.{os.getpid():07d}"
    put(programs, "squeue", f"sleep {mark} & sleep {mark}")
    began = time.monotonic()
    with pytest.raises(SlurmError, match=r"did not end within 0\.5 s; is slurmctld up"):
        run_program(("squeue",), within_s=0.5)
    assert time.monotonic() - began < 10
    until = time.monotonic() + 10
    while children_of(mark) and time.monotonic() < until:
        time.sleep(0.02)  # who has been sent SIGKILL ends when its turn comes
    assert children_of(mark) == []


def test_one_that_closes_its_output_and_stays_is_ended(programs: Path) -> None:
    put(programs, "squeue", "exec sleep 60 >&- 2>&-")
    with pytest.raises(SlurmError, match="did not end"):
        run_program(("squeue",), within_s=0.5)


def test_one_that_prints_without_end_is_ended(programs: Path) -> None:
    put(programs, "squeue", "exec cat /dev/zero")
    with pytest.raises(SlurmError, match="more than 1 MB"):
        run_program(("squeue",), most=1_000_000)
    put(programs, "squeue", "head -c 100000000 /dev/zero >&2; exit 3")
    status, _, errors = run_program(("squeue",))
    assert (status, len(errors)) == (3, 512), "of its errors the beginning is enough"


def test_what_fails_is_said_in_its_words(programs: Path) -> None:
    put(programs, "squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    with pytest.raises(SlurmError, match="squeue says: slurm_load_jobs error"):
        SlurmPrograms().jobs()
    with pytest.raises(SlurmError, match="not on this machine"):
        run_program(("no-such-program-of-slurm",))


def test_its_environment_changes_no_question(programs: Path, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    monkeypatch.setenv("GPUDECK_TOKEN", "secret")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    put(programs, "squeue", "env")
    _, printed, _ = run_program(("squeue",))
    assert b"SLURM_CONF=/etc/other.conf" in printed
    assert b"SQUEUE_STATES" not in printed
    assert b"secret" not in printed
