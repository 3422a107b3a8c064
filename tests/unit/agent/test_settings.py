import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.cli.action_settings import read_act
from agent.settings import enrolment_tokens, read, read_show
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import EnrolmentToken


def test_defaults() -> None:
    settings = read([], {"XDG_STATE_HOME": "/state"})
    assert settings.hub == ("http://127.0.0.1:8050",)
    assert settings.data == Path("/state/gpudeck/agent")
    assert (settings.backend, settings.token_file) == ("auto", None)
    assert settings.host


def test_the_token_comes_from_a_file_or_the_environment_never_from_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_show("status", [], {"GPUDECK_TOKEN": "from-env"}).token() == "from-env"
    assert read_show("status", [], {"GPUDECK_TOKEN_FILE": str(file)}).token() == "from-file"
    flagged = read_show("status", ["--token-file", str(file)], {"GPUDECK_TOKEN": "from-env"})
    assert flagged.token() == "from-file"
    file.write_text("renewed\n")
    assert flagged.token() == "renewed"
    for program in (lambda words: read(words, {}), lambda words: read_show("tasks", words, {})):
        with pytest.raises(CommandError):
            program(["--token", "x"])


def test_a_token_in_a_pipe_can_be_read_once_and_asked_for_twice() -> None:
    """`--token-file <(echo $TOKEN)` of a shell."""
    out, into = os.pipe()
    os.write(into, b"from-pipe\n")
    os.close(into)
    try:
        settings = read_show("tasks", ["--token-file", f"/dev/fd/{out}"], {})
        assert (settings.token(), settings.token()) == ("from-pipe", "from-pipe")
    finally:
        os.close(out)


def test_enrolment_tokens(tmp_path: Path) -> None:
    first, second = EnrolmentToken.new("ab" * 16), EnrolmentToken.new("ab" * 16)
    assert enrolment_tokens(None, {}) == []
    assert enrolment_tokens(None, {"GPUDECK_TOKEN": f" {first.text}\n"}) == [first]
    file = tmp_path / "tokens"
    file.write_text(f"{first.text}\n{second.text}\n")
    assert enrolment_tokens(file, {"GPUDECK_TOKEN": "x"}) == [first, second]


def mistyped(text: str) -> list[str]:
    return ["word", text[:-1], text + "0", text.replace("gdk1", "gdk2"), text.replace(".", "", 1),
            text[:22] + text[23:], text.replace(".", ".!", 2), "gdk1...", text.upper()]


def test_a_mistyped_token_is_refused_and_not_repeated() -> None:
    text = EnrolmentToken.new("ab" * 16).text
    for wrong in mistyped(text):
        with pytest.raises(CommandError) as error:
            enrolment_tokens(None, {"GPUDECK_TOKEN": wrong})
        assert error.value.code == ExitCode.USAGE
        assert text[22:40] not in str(error.value)


@pytest.mark.parametrize("arguments", [
    ["--hub", "127.0.0.1:8050"], ["--hub", "ftp://x"], ["--hub", "http://user:secret@hub"],
    ["--backend", "cuda"], ["--host", ""], ["--hub", "http://hub.example:8050"],
    ["--hub", "http://10.0.0.5:8050"], ["--hub", "http://127.0.0.1.evil.example"],
])
def test_what_is_wrong_is_said(arguments: list[str]) -> None:
    with pytest.raises(CommandError) as error:
        read(arguments, {})
    assert error.value.code == ExitCode.USAGE


def test_show_asks_this_machine_unless_told_otherwise() -> None:
    assert read_show("status", [], {}).hub is None
    settings = read_show("tasks", ["--hub", "https://hub:1/", "--json"], {})
    assert (settings.hub, settings.json) == ("https://hub:1", True)


@pytest.mark.parametrize(("uid", "is_service_there", "says"), [
    (0, True, "/var/lib/gpudeck-agent"), (0, False, "/home/x/gpudeck/agent"),
    (1000, True, "/home/x/gpudeck/agent")])
def test_root_acts_beside_the_agent_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, uid: int, is_service_there: bool, says: str
) -> None:
    """See what a hub has stopped and what was done before, which another folder does not have."""
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("gpudeck.service.installed.is_installed", lambda _: is_service_there)
    monkeypatch.setattr("gpudeck.service.installed.state_folder", own_folder)
    monkeypatch.setattr("agent.settings.state_folder", own_folder)
    assert str(read_act("end", ["t1"], {}).reach.data) == says
    assert str(read_act("end", ["t1", "--data", "/mine"], {}).reach.data) == "/mine"
    assert str(read(["--pipe"], {}).data) == says, "a notebook's buttons"
    assert str(read([], {}).data) == "/home/x/gpudeck/agent", "an agent of its own"


def own_folder(program: str, env: Mapping[str, str]) -> Path:
    return Path("/home/x/gpudeck") / program
