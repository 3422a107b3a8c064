"""Writes what a shell needs to complete `gpudeck`, made by shtab from the parsers of all commands.

tests/unit/gpudeck/test_shell_completion.py compares, so that no command or flag can be forgotten.
"""

import argparse
import importlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from gpudeck.cli.shell_completion import SHELLS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "gpudeck" / "completions"
# Those that look at the first word themselves, and have a parser for each.
SPLIT = {"quota": ("list", "set", "remove", "check"), "estimate": ("inference", "training")}
BESIDE = {"pool": ("simulate", "manifest", "import")}  # that have flags of their own, too


class _ParserFound(BaseException):
    """Carries a parser out of the command that was about to use it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def commands() -> dict[str, str]:
    text = (ROOT / "pyproject.toml").read_text()
    return dict(tomllib.loads(text)["project"]["entry-points"]["gpudeck.commands"])


def parsers() -> dict[str, argparse.ArgumentParser]:
    original = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = _catch  # type: ignore[method-assign,assignment]
    try:
        return {name: _parser_of(name, _callable(place)) for name, place in commands().items()}
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]


def _catch(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
    raise _ParserFound(parser)


def _callable(place: str) -> Callable[[list[str]], int]:
    """Import the command from the checkout, where the packages are not nested."""
    module, _, name = place.split()[0].partition(":")
    nested = module.removeprefix("gpudeck.")
    module = nested if nested.startswith(("agent.", "dashboard.")) else module
    command: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return command


def _parser_of(name: str, command: Callable[[list[str]], int]) -> argparse.ArgumentParser:
    verbs = SPLIT.get(name, BESIDE.get(name, ()))
    parser = (argparse.ArgumentParser(prog=f"gpudeck {name}") if name in SPLIT
              else _parser_of_call(command, []))
    if verbs:
        hang({verb: _parser_of_call(command, [verb]) for verb in verbs}, parser)
    return parser


def _parser_of_call(command: Callable[[list[str]], int], words: list[str]
                    ) -> argparse.ArgumentParser:
    try:
        command(words)
    except _ParserFound as stop:
        return stop.parser
    raise RuntimeError(f"{command.__name__} parsed nothing")


def hang(parsers: dict[str, argparse.ArgumentParser], root: argparse.ArgumentParser) -> None:
    verbs: Any = root.add_subparsers(metavar="COMMAND")
    for name, parser in parsers.items():
        about = (parser.description or "").split(". ")[0].rstrip(".")
        verbs.add_parser(name, help=about.replace("%", "%%"))
        verbs.choices[name] = parser


def _mark_files(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if action.metavar in ("FILE", "DIR"):
            kind = shtab.FILE if action.metavar == "FILE" else shtab.DIRECTORY
            action.complete = kind  # type: ignore[attr-defined]
        for below in (action.choices or {}).values() if isinstance(action.choices, dict) else ():
            _mark_files(below)


def files() -> dict[str, str]:
    """Return the text of each completion file by its name."""
    import shtab

    root = argparse.ArgumentParser(prog="gpudeck")
    root.add_argument("-V", "--version", action="store_true", help="say which version this is")
    hang(parsers(), root)
    _mark_files(root)
    return {f"gpudeck.{shell}": shtab.complete(root, shell=shell) + "\n"
            for shell in SHELLS}


def stale() -> list[str]:
    return [name for name, text in files().items()
            if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text]


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
