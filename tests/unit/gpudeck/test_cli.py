"""The command line: what it prints and returns, without a traceback."""

import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

from docs.make_completion import parsers
from gpudeck import __version__
from gpudeck.cli import main as cli
from gpudeck.cli.command_parser import verb_first
from gpudeck.errors import CommandError, ExitCode


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"gpudeck {__version__}\n"


def test_no_arguments_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == ExitCode.OK
    assert "usage: gpudeck COMMAND" in capsys.readouterr().out


def test_what_is_called_again_and_again_is_what_the_metadata_says() -> None:
    entries = {entry.name: entry.value for entry in entry_points(group=cli.GROUP)}
    assert {name: entries[name] for name in cli.AT_ONCE} == cli.AT_ONCE


@pytest.mark.parametrize("words", [
    ["advise"], ["events"], ["keep", "t"], ["mcp"], ["quota", "list"]], ids=" ".join)
def test_what_needs_a_hub_does_not_offer_this_machine(words: list[str],
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == ExitCode.USAGE
    assert "name the hub with --hub" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([*words, "--help"])
    assert re.search(r"--hub URL\s+the hub to ask; required", capsys.readouterr().out)


def test_unknown_command_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fly"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("gpudeck: no command 'fly'; there are ")


@pytest.mark.parametrize(("words", "sentence"), [
    (["tsks"], "no command 'tsks'; did you mean tasks?"),
    (["tasks", "--jsno"], "there is no flag '--jsno' here; did you mean --json"),
    (["mps", "shwo"], "did you mean show?"), (["mps", "show", "--nod", "n1"], "--node"),
    (["mps"], "choose one of: show, set"), (["quota", "lst"], "did you mean list"),
    (["end", "x", "--grace", "soon"], "not a span of time"),
    (["events", "--severity", "wrong"], "did you mean warning?"),
    (["--jsno", "tasks"], "no command '--jsno'"),
])
def test_what_may_have_been_meant_is_said(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert sentence in err
    assert "usage:" not in err


@pytest.mark.parametrize(("words", "reordered"), [
    (["--hub", "U", "mps", "show"], ["mps", "--hub", "U", "show"]),
    (["--hub=U", "--json", "run", "--", "x", "--json"],
     ["run", "--hub=U", "--json", "--", "x", "--json"]),
    (["end", "--json", "x"], ["end", "--json", "x"]), (["--json"], ["--json"]), ([], [])])
def test_hub_and_json_may_stand_in_front(words: list[str], reordered: list[str]) -> None:
    assert verb_first(words) == reordered


@pytest.mark.parametrize("words", [
    ["--json", "mps", "show"], ["mps", "--json", "show"], ["mps", "show", "--json"]])
def test_json_in_any_place(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["items"]


@pytest.mark.parametrize("name", sorted(parsers()))
def test_every_value_has_a_name(name: str) -> None:
    """`--nodes N`, never `--nodes X`."""
    assert not re.search(r"--[a-z-]+ X\b", parsers()[name].format_help())


def test_a_missing_extra_is_named() -> None:
    entry = EntryPoint("hub", "no_such_module_of_the_hub:hub [hub]", cli.GROUP)
    with pytest.raises(CommandError, match=r"pip install 'gpudeck\[hub\]'") as error:
        cli._load(entry)
    assert error.value.code == ExitCode.CANNOT_START


def test_a_bug_of_ours_is_not_called_a_missing_extra() -> None:
    entry = EntryPoint("hub", "gpudeck.no_such_file:hub [hub]", cli.GROUP)
    with pytest.raises(ModuleNotFoundError):
        cli._load(entry)


def test_listing_commands_imports_no_command() -> None:
    heavy = "import sys; from gpudeck.cli import main as cli; cli.main([]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True,
                            check=True).stdout.split()
    assert "gpudeck.cli.main" in loaded
    assert not {"dash", "flask", "pynvml", "socketio", "numpy"} & set(loaded)


def test_a_closed_pipe_is_no_error() -> None:
    shell = f"{sys.executable} -m gpudeck.cli.main --help | true; echo ${{PIPESTATUS[0]}}"
    child = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "0"
    assert child.stderr == ""
