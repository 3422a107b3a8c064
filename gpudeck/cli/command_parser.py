"""Command-line parsing shared by all commands: one sentence for an error, and a suggestion of what
may have been meant."""

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

from gpudeck.errors import CommandError, ExitCode

# Options for the hub and the output's form: allowed anywhere, also in front of the verb.
VALUES_ANYWHERE = ("--hub", "--token-file", "--ca-file", "--config", "--data")
ANYWHERE = (*VALUES_ANYWHERE, "--json", "--no-json")
_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from .*\)", re.DOTALL)


def verb_first(words: Sequence[str], local_flags: Collection[str] = ()) -> list[str]:
    """Move options that stand in front of the verb behind it, except `local_flags`, which stay."""
    unmoved: list[str] = []
    moved: list[str] = []
    remaining = list(words)
    while remaining and (name := remaining[0].partition("=")[0]) in ANYWHERE:
        takes = 2 if name in VALUES_ANYWHERE and "=" not in remaining[0] else 1
        (unmoved if name in local_flags else moved).extend(remaining[:takes])
        remaining = remaining[takes:]
    return [*unmoved, *remaining[:1], *moved, *remaining[1:]]


def read_verb(words: Sequence[str], verbs: Collection[str], overview: str
              ) -> tuple[str, list[str]] | None:
    """Return the verb and what follows it; None: the overview was requested, and is printed."""
    arguments = verb_first(words)
    if arguments and arguments[0] in verbs:
        return arguments[0], arguments[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(overview)
        return None
    wrong = f"no {arguments[0][:60]!r}{near(arguments[0], verbs)}\n" if arguments else ""
    raise CommandError(f"{wrong}{overview}", ExitCode.USAGE)


class CommandParser(argparse.ArgumentParser):
    """Raises CommandError instead of printing pages of usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if args is not None and self._subparsers is not None:
            args = verb_first(args, self._option_string_actions)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        sentence = _explain(self, message)
        more = f" `{self.prog} --help` lists them" if sentence.endswith("?") else (
            f"; see `{self.prog} --help`")
        raise CommandError(sentence + more, ExitCode.USAGE)


def parsed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap `parse`, which raises ValueError with a sentence, as a `type` for argparse."""
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return read


def near(word: str, choices: Collection[str], otherwise: str = "") -> str:
    matches = difflib.get_close_matches(word, choices, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(matches)}?" if matches else otherwise


def _explain(parser: argparse.ArgumentParser, message: str) -> str:
    head, _, rest = message.partition(": ")
    if head == "unrecognized arguments":
        return _unknown(rest.split(), {*_flags(parser)}, message)
    if choice := _CHOICE.fullmatch(message):
        choices = _choices(parser, choice[1])
        listed = f"; there are {', '.join(choices)}"
        return f"{choice[1]}: no {choice[2][:60]!r}{near(choice[2], choices, listed)}"
    if head == "the following arguments are required" and (verbs := _choices(parser, rest)):
        return f"choose one of: {', '.join(verbs)}"
    return message


def _unknown(words: Sequence[str], flags: Collection[str], message: str) -> str:
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("-") and name not in flags:
            return f"there is no flag {name[:60]!r} here{near(name, flags)}"
    return message


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _parsers(subparser)


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for current in _parsers(parser):
        yield from current._option_string_actions


def _choices(parser: argparse.ArgumentParser, name: str) -> list[str]:
    """Return the choices of the argument that usage calls `name`; [] where it has none."""
    return next(([str(word) for word in action.choices] for action in parser._actions
                 if action.choices is not None
                 and name in (action.metavar, action.dest, "/".join(action.option_strings))), [])
