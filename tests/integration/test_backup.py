"""A whole hub, out of its folder while it runs and into another: its nodes know it again."""

import json
import os
from pathlib import Path

import pytest

from dashboard.cli.hub import hub as hub_command
from gpudeck.errors import CommandError
from gpudeck.keys import locked_box, opened_box
from gpudeck.wire import Welcome
from tests.integration.hubs import Caller, HubProcess, RawSocket, greet
from tests.integration.telling import Teller

PASSPHRASE = "correct horse battery staple"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "passphrase"
    path.write_text(PASSPHRASE + "\n")
    return path


def test_a_restored_hub_is_known_to_its_nodes(tmp_path: Path, words: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        caller = Caller("n1")
        raw = RawSocket(hub, "/agent")
        assert isinstance(greet(raw, caller, hub.token()), Welcome)
        (hub.folder / "secrets").mkdir(mode=0o700)
        (hub.folder / "secrets/pager").write_text("R0")
        made = hub.ask("/api/v1/users", "POST", body=json.dumps(
            {"name": "ada", "role": "viewer"}).encode(), Content_Type="application/json")
        assert made.status == 201, made.body
        assert hub_command(["backup", str(tmp_path / "copy"), "--data", str(hub.folder),
                            "--passphrase-file", str(words)]) == 0
        hub_command(["backup", str(tmp_path / "copy"), "--data", str(hub.folder),
                     "--passphrase-file", str(words)])  # again into the same
        raw.close()
        assert hub.stop() == 0
    for path in (tmp_path / "copy").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.is_dir() or b"R0" not in path.read_bytes(), "secrets are encrypted"
    assert hub_command(["restore", str(tmp_path / "copy"), "--data", str(tmp_path / "other"),
                        "--passphrase-file", str(words)]) == 0
    assert (tmp_path / "other/secrets/pager").read_text() == "R0"
    with HubProcess(tmp_path / "other") as hub:
        raw = RawSocket(hub, "/agent")
        assert isinstance(greet(raw, caller), Welcome), "by its key alone"
        assert "ada" in [user["name"] for user in hub.get("/api/v1/users")["items"]]
        raw.close()


def test_history_comes_along(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        teller = Teller("n1", 2)
        teller.connect(hub)
        for _ in range(3):
            teller.tell()
        hub.stop()
    before = sorted(path.name for path in (tmp_path / "hub/history").rglob("*.parquet"))
    hub_command(["backup", str(tmp_path / "copy"), "--data", str(tmp_path / "hub")])
    hub_command(["restore", str(tmp_path / "copy"), "--data", str(tmp_path / "other")])
    assert sorted(path.name for path in (tmp_path / "other/history").rglob("*.parquet")) == before


@pytest.fixture(name="copy")
def _copy(tmp_path: Path, words: Path) -> Path:
    with HubProcess(tmp_path / "hub") as hub:
        hub.stop()
    hub_command(["backup", str(tmp_path / "copy"), "--data", str(tmp_path / "hub"),
                 "--passphrase-file", str(words)])
    return tmp_path / "copy"


def test_what_is_wrong_is_said_and_leaves_nothing(tmp_path: Path, copy: Path, words: Path) -> None:
    other = tmp_path / "other"
    back = ["restore", str(copy), "--data", str(other)]

    def refused(arguments: list[str], says: str) -> None:
        with pytest.raises(CommandError, match=says):
            hub_command(arguments)
        assert not (other / "state.db").exists()

    refused(back, "give --passphrase-file")
    wrong = tmp_path / "wrong"
    wrong.write_text("another horse battery")
    refused([*back, "--passphrase-file", str(wrong)], "passphrase is wrong")
    right = [*back, "--passphrase-file", str(words)]
    state = (copy / "state.db").read_bytes()
    (copy / "state.db").write_bytes(state[:-1] + bytes([state[-1] ^ 1]))
    refused(right, "not what the backup wrote")
    (copy / "state.db").write_bytes(state)
    mark = (copy / "backup.json").read_text()
    (copy / "backup.json").unlink()
    refused(right, "is not a complete backup")
    (copy / "backup.json").write_text(mark)
    with pytest.raises(CommandError, match="there is a hub in"):
        hub_command(["restore", str(copy), "--data", str(tmp_path / "hub"), "--passphrase-file",
                     str(words)])
    with pytest.raises(CommandError, match="something else in it"):
        hub_command(["backup", str(tmp_path / "hub"), "--data", str(tmp_path / "hub")])
    wrong.write_text("short")
    with pytest.raises(CommandError, match="12 characters"):
        hub_command([*back, "--passphrase-file", str(wrong)])


def test_a_box_opens_for_its_passphrase_alone() -> None:
    content = os.urandom(1_000)
    box = locked_box(PASSPHRASE, content)
    assert opened_box(PASSPHRASE, box) == content
    for changed in (box[:-1], box[:20] + bytes([box[20] ^ 1]) + box[21:], b"", b"x" * 40):
        with pytest.raises(ValueError, match=r"passphrase is wrong|not a box"):
            opened_box(PASSPHRASE, changed)
