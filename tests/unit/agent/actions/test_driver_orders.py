"""Orders to release a driver on a node with boards of several vendors: each is of one driver,
and of no other."""

import os
from pathlib import Path

import pytest

from agent.actions import hold_files as files
from agent.actions.quiet_window import QUIET_FILE, quiet
from agent.backends import BACKENDS
from agent.cli import hold as command
from agent.tasks import device_users
from gpudeck.contract.vendors import PCI
from gpudeck.errors import CommandError


def released(data: Path) -> set[str]:
    """Return the vendors whose driver must be released; "": a backend of none."""
    return {vendor for vendor in (*PCI, "") if files.driver_order(data, vendor)}


def test_a_hold_names_the_vendor_whose_driver_it_releases(tmp_path: Path) -> None:
    hold = tmp_path / files.driver_file("AMD")
    assert released(tmp_path) == set()
    hold.write_text("a new board\nada\n")
    assert released(tmp_path) == {"AMD", ""}, "who cannot say what it reads obeys every one"
    assert files.driver_order(tmp_path, "AMD").startswith("AMD's driver released by ada since")
    [sentence] = [words for words in files.holds(files.hold_files(tmp_path)) if str(hold) in words]
    assert "a new board" in sentence, "and actions are stopped"
    (tmp_path / files.driver_file("NVIDIA")).touch()
    assert released(tmp_path) == {"AMD", "NVIDIA", ""}
    hold.unlink()
    assert released(tmp_path) == {"NVIDIA", ""}, "the repair of one goes on while the other is back"
    (tmp_path / files.DRIVER_FILE).touch()
    assert released(tmp_path) == {*PCI, ""}


@pytest.mark.parametrize(("vendor", "vendors"), [
    ("NVIDIA", {"NVIDIA", ""}), ("", {*PCI, ""})])
def test_a_quiet_window_is_of_one_driver(tmp_path: Path, vendor: str, vendors: set[str]) -> None:
    with quiet(tmp_path, vendor, lambda: False):
        assert released(tmp_path) == vendors
    assert released(tmp_path) == set()


def test_a_window_of_an_older_agent_is_of_every_driver(tmp_path: Path) -> None:
    with quiet(tmp_path, "NVIDIA", lambda: False):
        file = tmp_path / QUIET_FILE
        file.write_text("\n".join(file.read_text().split()[:2]) + "\n")
        assert released(tmp_path) == {*PCI, ""}


@pytest.mark.parametrize(("backends", "pids"), [
    ((), [1, 2, 3]), (("amd",), [2]), (("nvml",), [1]), (("intel",), [])])
def test_readers_are_known_by_what_they_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backends: tuple[str, ...],
        pids: list[int]) -> None:
    for pid, words in ((1, ("python", "-P", "-m", device_users.READER, "nvml", "0.0", "")),
                       (2, ("python", "-m", f"gpudeck.{device_users.READER}", "amd", "0.0", "")),
                       (3, ("python", "-m", device_users.READER, "simulated", "0.0", "amd")),
                       (4, ("cat", "amd"))):
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}/cmdline").write_bytes("\0".join(words).encode() + b"\0")
    monkeypatch.setattr(device_users, "PROC", tmp_path)
    monkeypatch.setattr(device_users, "table", lambda: {
        pid: type("Row", (), {"pid": pid, "parent": 9}) for pid in range(1, 6)})
    assert device_users.readers(None, backends) == device_users.readers(9, backends) == pids


@pytest.mark.parametrize(("words", "names"), [
    (["--driver"], {"driver-hold"}), (["--driver", "amd"], {"driver-hold-amd"}),
    (["--driver", "NVIDIA"], {"driver-hold-nvidia"}), ([], {"hold"})])
def test_the_command_holds_what_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        words: list[str], names: set[str]) -> None:
    monkeypatch.setattr(command, "_check_agent", lambda data: None)
    requests: list[list[str]] = []

    def none_left(agent: int | None, backends: list[str]) -> list[int]:
        requests.append([*backends])
        return []

    monkeypatch.setattr(command, "_remaining_readers", none_left)
    assert command.hold(["--data", str(tmp_path), *words]) == 0
    assert {*os.listdir(tmp_path)} == names
    backends = [name for name, row in BACKENDS.items() if row.vendor and words[1:] and
             row.vendor.lower() == words[1].lower()]
    assert requests == ([backends] if words else [])
    command.release(["--data", str(tmp_path), *words])
    assert os.listdir(tmp_path) == []


def test_to_open_one_driver_leaves_the_hold_of_another(tmp_path: Path) -> None:
    for vendor in PCI:
        (tmp_path / files.driver_file(vendor)).touch()
    command.release(["--data", str(tmp_path), "--driver", "intel"])
    assert {*os.listdir(tmp_path)} == {"driver-hold-nvidia", "driver-hold-amd"}
    command.release(["--data", str(tmp_path), "--driver"])
    assert os.listdir(tmp_path) == []


def test_a_vendor_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises((CommandError, SystemExit)):
        command.hold(["--data", str(tmp_path), "--driver", "matrox"])
    assert os.listdir(tmp_path) == []
