"""The ceiling: what cannot be trusted permits nothing."""

import os
import pwd
from pathlib import Path

import pytest

from agent.actions import ceiling
from agent.actions.ceiling import Ceiling, read_ceiling
from agent.actions.hold_files import DRIVER_FILE, driver_files, driver_order, hold_files, holds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ceiling.toml"
    path.write_text("")
    path.chmod(0o644)
    return path


def test_the_shipped_example_says_the_defaults() -> None:
    shipped = Path(__file__).parents[4] / "packaging" / "ceiling.toml"
    live = read_ceiling(shipped)
    if live.trouble and os.stat(shipped).st_uid != os.geteuid():
        pytest.skip(f"the checkout is not ours: {live.trouble}")
    assert live == Ceiling()
    for name in Ceiling.__dataclass_fields__:
        assert name == "trouble" or f"\n{name} =" in shipped.read_text()


def test_none_at_the_usual_place_means_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceiling, "DEFAULT", tmp_path / "none.toml")
    assert read_ceiling(None) == Ceiling()
    missing = read_ceiling(tmp_path / "none.toml")
    assert (missing.permitted_actions, "is not there" in missing.trouble) == ((), True)


@pytest.mark.parametrize(("text", "words"), [
    ("actions = [", "not TOML"), ("nonsense = 1", "has a key"), ("kills_per_hour = -1", "valid"),
    ("kills_per_hour = true", "valid"), ("actions = ['explode']", "valid"),
    ("managed = 'x'", "valid"), ("rules_may_act = 1", "valid"),
    ("protected_users = [1]", "valid"), ("trouble = ''", "has a key"),
    ("\xff", "not TOML"),
])
def test_what_is_not_understood_permits_nothing(path: Path, text: str, words: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    live = read_ceiling(path)
    assert live.permitted_actions == ()
    assert words in live.trouble


@pytest.mark.parametrize("spoil", ["group", "world", "link", "folder", "fifo", "owner"])
def test_what_others_could_write_permits_nothing(path: Path, spoil: str) -> None:
    assert read_ceiling(path).permitted_actions  # the control
    if spoil == "link":
        path.rename(path.with_name("real"))
        path.symlink_to(path.with_name("real"))
    elif spoil == "folder":
        path.parent.chmod(0o777)
    elif spoil == "fifo":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif spoil == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 12_345, -1)
    else:
        path.chmod(0o664 if spoil == "group" else 0o646)
    live = read_ceiling(path)
    assert (live.permitted_actions, bool(live.trouble)) == ((), True)


def test_hold_files(tmp_path: Path) -> None:
    files = hold_files(tmp_path)
    mine = files[-1:]
    assert holds(mine) == ()
    mine[0].write_text("maintenance \x1b[31m until noon\nmore\n")
    [hold] = holds(mine)
    assert str(mine[0]) in hold
    assert "maintenance" in hold
    assert "\x1b" not in hold
    mine[0].unlink()
    mine[0].symlink_to("/nowhere")  # somebody meant to hold
    assert len(holds(mine)) == 1


def test_an_order_to_let_go_of_the_driver_holds_acts_too(tmp_path: Path) -> None:
    own = driver_files(tmp_path)[-1]
    assert own.parent == tmp_path
    assert driver_order(tmp_path) == ""
    own.write_text("new driver\x1b\nada as root\n")
    os.utime(own, (0, 0))
    assert driver_order(tmp_path) == (
        "driver released by ada as root since 1970-01-01 00:00:00 UTC (new driver); "
        "`gpudeck release` on the node opens it again")
    [hold] = [hold for hold in holds(hold_files(tmp_path)) if str(own) in hold]
    assert driver_order(tmp_path) in hold
    own.unlink()
    own.touch()  # by hand, without a word
    assert f"released by {pwd.getpwuid(os.getuid()).pw_name} since" in driver_order(tmp_path)
    own.unlink()
    os.mkfifo(own)  # that nobody writes to
    assert driver_order(tmp_path) != ""


def test_a_hold_alone_lets_go_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "hold").write_text("flaky\n")
    assert driver_order(tmp_path) == ""
    assert (tmp_path / DRIVER_FILE) in hold_files(tmp_path)
