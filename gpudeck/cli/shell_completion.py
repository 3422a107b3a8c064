"""`gpudeck completion`: prints the script by which a shell completes this command. The scripts are
made by docs/make_completion.py, so that a node needs nothing for it."""

import argparse
from collections.abc import Sequence
from importlib.resources import files

from gpudeck.cli.command_parser import CommandParser
from gpudeck.errors import ExitCode

SHELLS = ("bash", "zsh")
HOW = """\
For this shell, and for each new one:

  bash:  source <(gpudeck completion bash)
         gpudeck completion bash > ~/.local/share/bash-completion/completions/gpudeck
  zsh:   gpudeck completion zsh > "${fpath[1]}/_gpudeck"
"""


def completion(argv: Sequence[str]) -> int:
    print(files("gpudeck").joinpath("completions", f"gpudeck.{_shell(argv)}").read_text(), end="")
    return ExitCode.OK


def _shell(argv: Sequence[str]) -> str:
    parser = CommandParser(
        prog="gpudeck completion", description="Completion for your shell.",
        epilog=HOW, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shell", choices=SHELLS)
    return str(parser.parse_args(list(argv)).shell)
