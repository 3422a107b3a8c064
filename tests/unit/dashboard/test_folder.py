"""The hub's folder is private: others' access to it, or a link elsewhere, is found at the start."""

import os
from pathlib import Path

import pytest

from dashboard.actions.hub_key import HubKey
from dashboard.runtime.data_folder import OURS, lock_folder, open_folder
from dashboard.state import HubState
from gpudeck.errors import CommandError, ExitCode


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Return a folder as a hub left it."""
    folder = tmp_path / "data"
    open_folder(folder)
    lock_folder(folder).close()
    HubKey(folder)
    HubState.open(folder).close()
    return folder


def test_all_that_a_hub_makes_is_its_own(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} >= {"lock", "state.db", "hub.key"}
    for path in (folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    open_folder(folder)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_a_link_in_the_folder_is_refused(folder: Path, name: str, target: str) -> None:
    outside = folder.parent / "there"
    outside.write_text("not yours")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(folder.parent / target)
    with pytest.raises(CommandError, match="is a link") as error:
        open_folder(folder)
    assert error.value.code == ExitCode.CANNOT_START
    assert outside.read_text() == "not yours"
    assert not (folder.parent / "nowhere").exists()


@pytest.mark.parametrize("name", ["", "state.db", "hub.key", "lock"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_what_others_can_read_or_write_is_refused(folder: Path, name: str, mode: int) -> None:
    (folder / name).chmod(mode | (0o700 if not name else 0))
    with pytest.raises(CommandError, match="chmod"):
        open_folder(folder)


def test_a_folder_that_is_a_link_is_refused(folder: Path) -> None:
    link = folder.parent / "link"
    os.symlink(folder, link)
    with pytest.raises(CommandError, match="is a link"):
        open_folder(link)
