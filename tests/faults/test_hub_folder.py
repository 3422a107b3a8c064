"""A hub that starts in a damaged folder: one sentence that says what to do, never a traceback, and
nothing is lost by trying."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpudeck.errors import ExitCode
from tests.faults.test_agent_disk import fill, small_disk
from tests.integration.hubs import REPOSITORY, HubProcess
from tests.integration.visitors import add_person


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a hub that has run and was stopped."""
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        add_person(hub, "root", "admin")
        hub.stop()
        yield hub.folder


@pytest.fixture(name="hurt")
def _hurt(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "data"))


def refusal_of(*words: str) -> str:
    result = subprocess.run([sys.executable, "-m", *words], cwd=REPOSITORY, timeout=60,
                            capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    assert result.returncode == ExitCode.CANNOT_START, output
    assert "Traceback" not in output
    *_, last = result.stderr.splitlines()
    assert last.startswith("gpudeck: ")
    return last


def start_refused(data: Path) -> str:
    return refusal_of("dashboard", "hub", "--bind", "127.0.0.1:0", "--data", str(data))


def starts(data: Path) -> bool:
    with HubProcess(data) as hub:
        return len(hub.get("/api/v1/users")["items"]) == 1


@pytest.mark.parametrize("how", ["empty", "gone"])
def test_an_empty_state_beside_a_signer_that_has_signed_is_no_new_hub(hurt: Path, how: str) -> None:
    whole = (hurt / "state.db").read_bytes()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (hurt / name).unlink(missing_ok=True)
    if how == "empty":
        (hurt / "state.db").touch(mode=0o600)
    for _ in range(2):  # the first try leaves nothing that the second would take for a state
        sentence = start_refused(hurt)
        assert "a hub has run here" in sentence
        assert "new folder" in sentence
    assert "Become the first admin" not in sentence
    for name in ("state.db-wal", "state.db-shm"):
        (hurt / name).unlink(missing_ok=True)
    (hurt / "state.db").write_bytes(whole)
    assert starts(hurt)


@pytest.mark.parametrize("damage", ["not JSON", "a word that is missing", "not readable"])
def test_a_damaged_log_of_signatures_is_said_to_be_one(hurt: Path, damage: str) -> None:
    log = hurt / "signer.json"
    whole = log.read_text()
    match damage:
        case "not JSON":
            log.write_text(whole[:-2])
        case "a word that is missing":
            log.write_text(whole.replace("spent", "bent"))
        case "not readable":  # by root either
            log.unlink()
            log.mkdir(mode=0o700)
    assert "signer.json, its log of signatures" in start_refused(hurt)
    if log.is_dir():
        log.rmdir()
        log.touch(mode=0o600)
    log.write_text(whole)
    assert starts(hurt)


@pytest.mark.parametrize("where", ["header", "pages"])
def test_a_damaged_state_is_said_to_be_one(hurt: Path, where: str) -> None:
    state = hurt / "state.db"
    size = state.stat().st_size
    with state.open("r+b") as file:
        file.seek(0 if where == "header" else 4_096)
        file.write(random.randbytes(size if where == "pages" else 100))
    for sentence in (start_refused(hurt),
                     refusal_of("gpudeck.cli.main", "audit", "verify", "--data", str(hurt))):
        assert "is damaged" in sentence
        assert "restore a copy" in sentence


def test_a_state_in_use_by_another_is_said_to_be_one(hurt: Path) -> None:
    with closing(sqlite3.connect(hurt / "state.db", isolation_level=None)) as db:
        db.execute("begin immediate")
        assert "another program is using it" in start_refused(hurt)
        db.execute("rollback")
    assert starts(hurt)


def test_a_hub_that_starts_on_a_full_disk_says_so(folder: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        data = Path(shutil.copytree(folder, disk / "data"))
        filler = fill(disk)
        for pages in (0, 1, 2):  # more that are free: another step of its start fails
            os.truncate(filler, filler.stat().st_size - pages * 4_096)
            assert "full: free some space" in start_refused(data)
        filler.unlink()
        assert starts(data)
