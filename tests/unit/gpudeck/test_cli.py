"""The one command: what it says and returns, without a traceback."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from gpudeck import __version__, cli
from gpudeck.errors import CommandError, ExitCode


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"gpudeck {__version__}\n"


def test_no_arguments_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == ExitCode.OK
    assert "usage: gpudeck COMMAND" in capsys.readouterr().out


def test_unknown_command_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fly"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("gpudeck: no command 'fly'; there are ")


def test_a_missing_extra_is_named() -> None:
    entry = EntryPoint("hub", "no_such_module_of_the_hub:hub [hub]", cli.GROUP)
    with pytest.raises(CommandError, match=r"pip install 'gpudeck\[hub\]'") as caught:
        cli._load(entry)
    assert caught.value.code == ExitCode.CANNOT_START


def test_a_bug_of_ours_is_not_called_a_missing_extra() -> None:
    entry = EntryPoint("hub", "gpudeck.no_such_file:hub [hub]", cli.GROUP)
    with pytest.raises(ModuleNotFoundError):
        cli._load(entry)


def test_listing_commands_imports_no_command() -> None:
    heavy = "import sys; from gpudeck import cli; cli.main([]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True,
                            check=True).stdout.split()
    assert "gpudeck.cli" in loaded
    assert not {"dash", "flask", "pynvml", "socketio", "numpy"} & set(loaded)


def test_a_closed_pipe_is_no_error() -> None:
    shell = f"{sys.executable} -m gpudeck.cli --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""
