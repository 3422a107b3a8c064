"""`gpudeck history`: the folder of history, checked, copied and brought back."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dashboard.cli.history import history as run
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.archive_index import ArchiveIndex
from dashboard.runtime.data_folder import lock_folder
from gpudeck.errors import CommandError
from tests.unit.histories import START, Source, differences


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> tuple[Path, Source]:
    folder, source = tmp_path / "hub", Source(random.randrange(10**9))
    folder.mkdir(mode=0o700)
    history = EmbeddedHistory(folder / "history")
    history.open()
    history.append(source.greetings(), 1)
    for t in range(START, START + 700):
        history.append(source.second(t), 1)
        if t % 60 == 0:
            history.store.maintain(t)
    return folder, source


def run_json(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*map(str, words), "--json"]) == 0
    reply: dict[str, Any] = json.loads(capsys.readouterr().out)
    return reply


def test_a_backup_comes_back_as_it_was(hub: tuple[Path, Source], tmp_path: Path,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    folder, source = hub
    info = run_json(capsys, "info", "--data", folder)
    assert info["kinds"]["raw"]["files"] == 2
    assert run_json(capsys, "verify", "--data", folder)["whole"]
    copy, new = tmp_path / "copy", tmp_path / "new"
    assert run_json(capsys, "backup", copy, "--data", folder)["files"] == sum(
        kind["files"] for kind in info["kinds"].values())
    run_json(capsys, "backup", copy, "--data", folder)  # once more into the same
    run_json(capsys, "restore", copy, "--data", new)
    assert run_json(capsys, "info", "--data", new)["kinds"] == info["kinds"]
    restored = EmbeddedHistory(new / "history")
    restored.open()
    assert differences(restored, source, START, START + 600) == []
    run(["info", "--data", str(new)])
    assert "raw" in capsys.readouterr().out


def test_a_backup_does_not_take_the_place_of_a_hubs_history(
        hub: tuple[Path, Source], tmp_path: Path) -> None:
    folder, _ = hub
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    lock_folder(other).close()
    shutil.copytree(folder / "history", other / "history")
    before = sorted((other / "history").rglob("*"))
    for target in (folder / "history", other / "history", other / "x" / ".." / "history"):
        with pytest.raises(CommandError, match="name another folder"):
            run(["backup", str(target), "--data", str(folder)])
    assert sorted((other / "history").rglob("*")) == before


def test_the_first_bad_file_is_named(hub: tuple[Path, Source], tmp_path: Path) -> None:
    folder, _ = hub
    bad = random.choice(sorted((folder / "history" / "raw").iterdir()))
    data = bytearray(bad.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    bad.write_bytes(data)
    for words in (["verify"], ["backup", str(tmp_path / "copy")]):
        with pytest.raises(CommandError, match=bad.name):
            run([*words, "--data", str(folder)])
    assert not (tmp_path / "copy" / "raw" / bad.name).exists()
    bad.unlink()
    with pytest.raises(CommandError, match="is gone"):
        run(["verify", "--data", str(folder)])


def test_nothing_is_restored_over_history_or_under_a_hub(hub: tuple[Path, Source], tmp_path: Path
                                                         ) -> None:
    folder, _ = hub
    run(["backup", str(tmp_path / "copy"), "--data", str(folder)])
    with pytest.raises(CommandError, match="already"):
        run(["restore", str(tmp_path / "copy"), "--data", str(folder)])
    running = tmp_path / "running"
    running.mkdir(mode=0o700)
    lock = lock_folder(running)
    with pytest.raises(CommandError, match="another hub"):
        run(["restore", str(tmp_path / "copy"), "--data", str(running)])
    lock.close()
    with pytest.raises(CommandError, match="no history"):
        run(["restore", str(tmp_path / "nothing"), "--data", str(running)])
    with pytest.raises(CommandError, match="--data"):
        run(["info", "--data", str(tmp_path / "nothing")])


def test_another_user_than_the_hubs_takes_no_archive(
        hub: tuple[Path, Source], monkeypatch: pytest.MonkeyPatch) -> None:
    """Root would leave a file there that the hub cannot read, and then archives nothing."""
    folder, _ = hub
    ArchiveIndex(folder / "history", "s3://bucket/prefix?endpoint=http://127.0.0.1:9").begin()
    with pytest.raises(CommandError, match="s3://bucket/prefix"):
        run(["own-archive", "--data", str(folder)])
    uid = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(CommandError, match="run this as that user"):
        run(["own-archive", "--data", str(folder)])
    assert not (folder / "history/archive.owner").exists()


def test_a_folder_is_made_of_an_archive_only_where_the_disk_was_lost(tmp_path: Path) -> None:
    words = ["from-archive", "--data", str(tmp_path / "hub"), "--archive"]
    with pytest.raises(CommandError, match="--archive: s3://BUCKET/PREFIX is needed"):
        run([*words, "https://bucket.example.org"])
    (tmp_path / "hub/headlog").mkdir(parents=True, mode=0o700)
    (tmp_path / "hub").chmod(0o700)
    log = tmp_path / "hub/headlog/head-00000001.log"
    log.write_bytes(b"")
    with pytest.raises(CommandError, match="did not lose its disk; start it as it is"):
        run([*words, "s3://bucket/prefix?endpoint=http://127.0.0.1:9"])
    with pytest.raises(CommandError, match="nothing was changed"):
        run([*words, "s3://bucket/prefix?endpoint=http://127.0.0.1:9", "--replace"])
    log.unlink()
    with pytest.raises(CommandError, match="nothing was changed"):
        run([*words, "s3://bucket/prefix?endpoint=http://127.0.0.1:9"])
    assert not [*(tmp_path / "hub").glob("history*")]
