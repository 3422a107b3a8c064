"""A whole hub, out of its folder while it runs and into another: its nodes know it again."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dashboard.cli.hub import hub as hub_command
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import Inventory, Welcome
from gpudeck.errors import CommandError
from gpudeck.network.keys import locked_box, opened_box
from tests.integration.hubs import Caller, HubProcess, RawSocket, greet
from tests.unit import fleets

PASSPHRASE = "correct horse battery staple"
NOBODY = 65_534


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
        answer = hub.ask("/api/v1/users", "POST", body=json.dumps(
            {"name": "ada", "role": "viewer"}).encode(), Content_Type="application/json")
        assert answer.status == 201, answer.body
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


def seal_history(folder: Path) -> None:
    """Write some minutes of a node into files of history."""
    history, begin = EmbeddedHistory(folder), 1_700_000_000
    history.open()
    history.append([HistoryMessage("n1", "s1", 0.0, fleets.hello("n1")), HistoryMessage(
        "n1", "s1", 0.0, Inventory(1, (fleets.facts("n1", 0),)))], 1)
    for second in range(400):
        frame = fleets.frame([{"util_pct": 50.0}], second + 1, begin + second)
        history.append([HistoryMessage("n1", "s1", 0.0, frame, begin + second)], 1)
    history.store.maintain(begin + 10_000)
    history.close()


def test_history_comes_along(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        hub.stop()
    seal_history(tmp_path / "hub/history")
    before = sorted(path.name for path in (tmp_path / "hub/history").rglob("*.parquet"))
    assert before, "a copy of nothing proves nothing"
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

    def assert_refused(arguments: list[str], says: str) -> None:
        with pytest.raises(CommandError, match=says):
            hub_command(arguments)
        assert not (other / "state.db").exists()

    assert_refused(back, "give --passphrase-file")
    wrong = tmp_path / "wrong"
    wrong.write_text("another horse battery")
    assert_refused([*back, "--passphrase-file", str(wrong)], "passphrase is wrong")
    right = [*back, "--passphrase-file", str(words)]
    state = (copy / "state.db").read_bytes()
    (copy / "state.db").write_bytes(state[:-1] + bytes([state[-1] ^ 1]))
    assert_refused(right, "not what the backup wrote")
    (copy / "state.db").write_bytes(state)
    mark = (copy / "backup.json").read_text()
    (copy / "backup.json").unlink()
    assert_refused(right, "is not a complete backup")
    (copy / "backup.json").write_text(mark)
    with pytest.raises(CommandError, match="there is a hub in"):
        hub_command(["restore", str(copy), "--data", str(tmp_path / "hub"), "--passphrase-file",
                     str(words)])
    with pytest.raises(CommandError, match="something else in it"):
        hub_command(["backup", str(tmp_path / "hub"), "--data", str(tmp_path / "hub")])
    wrong.write_text("short")
    with pytest.raises(CommandError, match="12 characters"):
        hub_command([*back, "--passphrase-file", str(wrong)])


def test_files_that_this_user_cannot_read_or_write_are_no_half_backup(
    tmp_path: Path, copy: Path
) -> None:
    """Root has copied the backup here, and made a folder for the next one; the hub's user runs the
    command."""
    if os.geteuid() != 0:
        pytest.skip("only root changes owners")
    hub = tmp_path / "hub"
    for path in (tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o001)
    for path in (hub, *hub.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    (tmp_path / "others").mkdir()
    (tmp_path / "others").chmod(0o755)
    (tmp_path / "closed").mkdir(mode=0o700)
    cannot_read = as_nobody("restore", copy, "--data", tmp_path / "new")
    assert f"nobody cannot read {copy}; as root, give it to that user" in cannot_read
    assert f"chown -R nobody: {copy}" in cannot_read
    for target in ("closed", "closed/new", "others", "others/new"):
        cannot_write = as_nobody("backup", tmp_path / target, "--data", hub)
        assert "install -d -o nobody -m 700" in cannot_write, cannot_write


def as_nobody(*words: object) -> str:
    """Return what the command says to an ordinary user."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            hub_command([*map(str, words)])
        except BaseException as error:
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        words_of_child = pipe.read().decode()
    os.waitpid(child, 0)
    return words_of_child


def change_box(copy: Path, change: Callable[[Any], Any]) -> None:
    """Change the box as somebody could who knows the passphrase."""
    path = copy / "keys.box"
    box = json.loads(opened_box(PASSPHRASE, path.read_bytes()))
    path.write_bytes(locked_box(PASSPHRASE, json.dumps(change(box)).encode()))


@pytest.mark.parametrize("name", [
    "../escaped", "secrets/../../escaped", "/tmp/escaped", "secrets/", "state.db", "pages/x.py",
    "secrets/deep/x", "secrets/..", ".ssh/authorized_keys"])
def test_names_in_a_box_stay_in_the_folder(tmp_path: Path, copy: Path, words: Path, name: str
                                           ) -> None:
    change_box(copy, lambda box: box | {"files": box["files"] | {name: ""}})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CommandError, match="no file of a hub's keys"):
        hub_command(["restore", str(copy), "--data", str(tmp_path / "other"),
                     "--passphrase-file", str(words)])
    assert sorted(tmp_path.rglob("*")) == before


def change_state(copy: Path) -> None:
    """Change the state, and with it its hash, which lies in the open."""
    with closing(sqlite3.connect(copy / "state.db")) as state, state:
        state.execute("create table planted (x)")
    mark = json.loads((copy / "backup.json").read_text())
    mark["state_sha256"] = hashlib.sha256((copy / "state.db").read_bytes()).hexdigest()
    (copy / "backup.json").write_text(json.dumps(mark))


def add_page(copy: Path) -> None:
    (copy / "pages").mkdir(mode=0o700, exist_ok=True)
    (copy / "pages/planted.py").write_text("print(1)")


def link_page(copy: Path) -> None:
    (copy / "pages").mkdir(mode=0o700, exist_ok=True)
    (copy / "pages/planted.py").symlink_to("/etc/passwd")


@pytest.mark.parametrize(("change", "says"), [
    (change_state, "not what the backup wrote"), (add_page, "not what the backup wrote"),
    (link_page, "is a link"),
    (lambda copy: (copy / "backup.json").write_text("[1]"), "not what a backup writes"),
    (lambda copy: (copy / "backup.json").write_text("{}"), "not what a backup writes"),
    (lambda copy: (copy / "backup.json").write_bytes(b"\xff\xfe"), "not what a backup writes"),
    (lambda copy: change_box(copy, lambda _: [1]), "does not hold what a backup writes"),
    (lambda copy: change_box(copy, lambda box: {"files": [], "digests": {}}), "does not hold"),
    (lambda copy: change_box(copy, lambda box: box["files"]), "does not hold"),
])
def test_what_was_changed_with_or_without_the_passphrase_is_refused(
        tmp_path: Path, copy: Path, words: Path, change: Callable[[Path], Any], says: str) -> None:
    change(copy)
    with pytest.raises(CommandError, match=says):
        hub_command(["restore", str(copy), "--data", str(tmp_path / "other"),
                     "--passphrase-file", str(words)])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_restore_that_fails_leaves_nothing_and_may_be_tried_again(tmp_path: Path,
                                                                    is_there: bool) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        hub.stop()
    seal_history(tmp_path / "hub/history")
    copy, other = tmp_path / "copy", tmp_path / "other"
    hub_command(["backup", str(copy), "--data", str(tmp_path / "hub")])
    if is_there:
        other.mkdir(mode=0o700)
        (other / "mine.txt").write_text("kept")
    hurt = max((copy / "history").rglob("*.parquet"), key=lambda path: path.name)
    content = hurt.read_bytes()
    hurt.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(CommandError, match=hurt.name):
        hub_command(["restore", str(copy), "--data", str(other)])
    leftovers = {path.name for path in other.iterdir()} if is_there else set()
    assert other.exists() == is_there
    assert leftovers <= {"mine.txt", "lock"}
    hurt.write_bytes(content)
    assert hub_command(["restore", str(copy), "--data", str(other)]) == 0
    assert (other / "state.db").exists()
    assert not (other / ".restoring").exists()


def test_a_box_opens_for_its_passphrase_alone() -> None:
    content = os.urandom(1_000)
    box = locked_box(PASSPHRASE, content)
    assert opened_box(PASSPHRASE, box) == content
    for changed in (box[:-1], box[:20] + bytes([box[20] ^ 1]) + box[21:], b"", b"x" * 40):
        with pytest.raises(ValueError, match=r"passphrase is wrong|not a box"):
            opened_box(PASSPHRASE, changed)
