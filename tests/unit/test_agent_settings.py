from pathlib import Path

import pytest

from agent.settings import read, read_show
from gpudeck.errors import CommandError, ExitCode


def test_defaults() -> None:
    settings = read([], {"XDG_STATE_HOME": "/state"})
    assert settings.hub == "http://127.0.0.1:8050"
    assert settings.data == Path("/state/gpudeck/agent")
    assert (settings.backend, settings.token()) == ("auto", "")
    assert settings.host


def test_the_token_comes_from_a_file_or_the_environment_never_from_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read([], {"GPUDECK_TOKEN": "from-env"}).token() == "from-env"
    assert read([], {"GPUDECK_TOKEN_FILE": str(file)}).token() == "from-file"
    flagged = read(["--token-file", str(file)], {"GPUDECK_TOKEN": "from-env"})
    assert flagged.token() == "from-file"
    file.write_text("renewed\n")
    assert flagged.token() == "renewed"
    with pytest.raises(SystemExit):
        read(["--token", "x"], {})


@pytest.mark.parametrize("arguments", [
    ["--hub", "127.0.0.1:8050"], ["--hub", "ftp://x"], ["--hub", "http://user:secret@hub"],
    ["--backend", "cuda"], ["--host", ""], ["--token-file", "/nowhere/at/all"],
])
def test_what_is_wrong_is_said(arguments: list[str]) -> None:
    with pytest.raises(CommandError) as caught:
        read(arguments, {})
    assert caught.value.code == ExitCode.USAGE


def test_show_asks_this_machine_unless_told_otherwise() -> None:
    assert read_show("status", [], {}).hub is None
    asked = read_show("tasks", ["--hub", "https://hub:1/", "--json"], {})
    assert (asked.hub, asked.json) == ("https://hub:1", True)
