"""Flags of all commands: one sentence for what is wrong, and what may have been meant."""

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

from gpudeck.errors import CommandError, ExitCode

# Which hub and in which form: these stand anywhere, also in front of the verb.
VALUES_ANYWHERE = ("--hub", "--token-file", "--ca-file", "--config", "--data")
ANYWHERE = (*VALUES_ANYWHERE, "--json", "--no-json")
_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from .*\)", re.DOTALL)


def verb_first(words: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """What stands in front of the verb, put behind it. `known`: what belongs where it stands."""
    kept: list[str] = []
    moved: list[str] = []
    left = list(words)
    while left and (name := left[0].partition("=")[0]) in ANYWHERE:
        takes = 2 if name in VALUES_ANYWHERE and "=" not in left[0] else 1
        (kept if name in known else moved).extend(left[:takes])
        left = left[takes:]
    return [*kept, *left[:1], *moved, *left[1:]]


def read_verb(words: Sequence[str], known: Collection[str], overview: str
              ) -> tuple[str, list[str]] | None:
    """The verb and what follows it; None: the overview was asked for, and is printed."""
    found = verb_first(words)
    if found and found[0] in known:
        return found[0], found[1:]
    if found[:1] in (["-h"], ["--help"]):
        print(overview)
        return None
    wrong = f"no {found[0][:60]!r}{near(found[0], known)}\n" if found else ""
    raise CommandError(f"{wrong}{overview}", ExitCode.USAGE)


class CommandParser(argparse.ArgumentParser):
    """Raises CommandError instead of printing pages of usage."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **how})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if args is not None and self._subparsers is not None:
            args = verb_first(args, self._option_string_actions)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        sentence = _meant(self, message)
        more = f" `{self.prog} --help` lists them" if sentence.endswith("?") else (
            f"; see `{self.prog} --help`")
        raise CommandError(sentence + more, ExitCode.USAGE)


def parsed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """`parse` raises ValueError with a sentence."""
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return read


def near(word: str, known: Collection[str], otherwise: str = "") -> str:
    found = difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else otherwise


def _meant(parser: argparse.ArgumentParser, message: str) -> str:
    head, _, rest = message.partition(": ")
    if head == "unrecognized arguments":
        return _unknown(rest.split(), {*_flags(parser)}, message)
    if choice := _CHOICE.fullmatch(message):
        known = _choices(parser, choice[1])
        listed = f"; there are {', '.join(known)}"
        return f"{choice[1]}: no {choice[2][:60]!r}{near(choice[2], known, listed)}"
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
            for each in action.choices.values():
                yield from _parsers(each)


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for each in _parsers(parser):
        yield from each._option_string_actions


def _choices(parser: argparse.ArgumentParser, name: str) -> list[str]:
    """Of the argument that usage calls so."""
    return next(([str(word) for word in action.choices] for action in parser._actions
                 if action.choices is not None
                 and name in (action.metavar, action.dest, "/".join(action.option_strings))), [])
