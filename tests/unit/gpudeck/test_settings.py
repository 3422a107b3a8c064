"""Flag, environment, file, default: one table, one order."""

from pathlib import Path

import pytest

from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import Setting, address, count, flag, folder, load, port, text

TABLE = (
    Setting("bind", address, ("127.0.0.1", 8050), "where to listen"),
    Setting("nodes", count, 8, "how many"),
    Setting("faults", flag, True, "with faults"),
    Setting("token", text, None, "the secret", secret=True),
    Setting("mode", text, "a", "one of two", choices=("a", "b")),
)


def value(name: str, *argv: str, env: dict[str, str] | None = None) -> object:
    return load("test", TABLE, argv, env or {})[name]


def test_defaults() -> None:
    assert load("test", TABLE, [], {}) == {
        "bind": ("127.0.0.1", 8050), "nodes": 8, "faults": True, "token": None, "mode": "a"}


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text("[test]\nnodes = 3")
    env = {"GPUDECK_CONFIG": str(tmp_path / "g.toml")}
    assert value("nodes", env=env) == 3
    assert value("nodes", env=env | {"GPUDECK_NODES": "4"}) == 4
    assert value("nodes", "--nodes", "5", env=env | {"GPUDECK_NODES": "4"}) == 5


def test_flags_that_are_yes_or_no() -> None:
    assert value("faults", "--no-faults") is False
    assert value("faults", env={"GPUDECK_FAULTS": "off"}) is False
    assert value("faults", "--faults", env={"GPUDECK_FAULTS": "off"}) is True


def test_a_secret_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("hush\n")
    assert value("token", env={"GPUDECK_TOKEN_FILE": str(tmp_path / "s")}) == "hush"
    (tmp_path / "g.toml").write_text(f'[test]\ntoken_file = "{tmp_path / "s"}"')
    assert value("token", "--config", str(tmp_path / "g.toml")) == "hush"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--bind", "8050"], "HOST:PORT is needed"),
        (["--bind", "h:70000"], "a port from 0 to 65535"),
        (["--bind", "h:-1"], "a port from 0 to 65535"),
        (["--nodes", "0"], "a whole number from 1 up"),
        (["--nodes", "²"], "a whole number from 1 up"),
        (["--mode", "c"], "choose one of a, b"),
        (["--config", "/nowhere/g.toml"], "cannot read /nowhere/g.toml"),
    ],
)
def test_a_bad_value_is_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence) as error:
        load("test", TABLE, argv, {})
    assert error.value.code == ExitCode.USAGE


def test_a_broken_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text("[test]\nnodes = = 3")
    with pytest.raises(CommandError, match="is not TOML"):
        load("test", TABLE, ["--config", str(tmp_path / "g.toml")], {})


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    """The wrong file, or one that an editor has written in UTF-16."""
    file = tmp_path / "token"
    file.write_bytes("gdk1.x".encode("utf-16"))
    with pytest.raises(CommandError, match=f"cannot read {file}: it is no text"):
        load("test", TABLE, [], {"GPUDECK_TOKEN_FILE": str(file)})
    with pytest.raises(CommandError, match="is not TOML"):
        load("test", TABLE, ["--config", str(file)], {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[test]\nnodez = 3", "no setting 'nodez'; there are .*nodes"),
        ("nodes = 3", r"'nodes' is outside any section; put it under \[test\]"),
    ],
)
def test_a_misplaced_key_in_the_file_is_named(
    content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "g.toml").write_text(content)
    with pytest.raises(CommandError, match=sentence):
        load("test", TABLE, ["--config", str(tmp_path / "g.toml")], {})


def test_the_section_of_another_program_is_its_own_affair(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text("[test]\nnodes = 3\n[agent]\nhost = 'n1'")
    assert value("nodes", "--config", str(tmp_path / "g.toml")) == 3


def test_a_bad_secret_is_not_repeated() -> None:
    table = (Setting("token", port, None, "a secret that is a number", secret=True),)
    with pytest.raises(CommandError) as error:
        load("test", table, [], {"GPUDECK_TOKEN": "hunter2"})
    assert "hunter2" not in str(error.value)


def test_parsers() -> None:
    assert address("[::1]:80") == ("::1", 80)
    assert folder("~").is_absolute()


def test_a_secret_is_never_a_flag() -> None:
    with pytest.raises(CommandError):
        load("test", TABLE, ["--token", "hush"], {})
