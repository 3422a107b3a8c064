"""`gpudeck rules`: rules as files, without a hub; and those of a hub."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

from ..alerts.core import rule_unit_tests
from ..alerts.core.rule import InvalidRuleError
from ..alerts.rules_file import PACK, RulesFile, parse
from .parts import make_parser
from .rules_hub import add_reach, backtest, give_out, take_in


def rules(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(list(argv))
    return VERBS[asked.verb](asked)


def _read(path: Path | None) -> RulesFile:
    try:
        text = sys.stdin.read() if path == Path("-") else (path or PACK).read_text()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not a text file in UTF-8") from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    return parse(text)


def _check(asked: argparse.Namespace) -> int:
    found = _read(asked.file)
    if asked.json:
        print(json.dumps({"rules": list(found.rules), "faults": [
            {"line": fault.line, "who": fault.who, "message": fault.message}
            for fault in found.faults]}, indent=2))
    else:
        print(*found.faults, sep="\n", end="\n" * bool(found.faults))
        print(_counted(found))
    return ExitCode.OK if not found.faults else ExitCode.FAILED


def _counted(found: RulesFile) -> str:
    if found.faults:
        number = len(found.faults)
        return f"{number} fault{'s' * (number != 1)}; nothing of this file would be taken"
    return f"{len(found.rules)} rules and {len(found.drills)} tests are well written"


def _test(asked: argparse.Namespace) -> int:
    found = _read(asked.file)
    if found.faults:
        return _check(asked)
    results = [_result(found, number, each) for number, each in enumerate(found.drills, 1)]
    if asked.json:
        print(json.dumps(results, indent=2))
    else:
        for result in results:
            print("ok  " if result["ok"] else "NOT ", result["test"])
            print(*(f"       {line}" for line in result["differences"]), sep="\n",
                  end="\n" * bool(result["differences"]))
        print(f"{sum(result['ok'] for result in results)} of {len(results)} tests pass")
    return ExitCode.OK if results and all(each["ok"] for each in results) else ExitCode.FAILED


def _result(found: RulesFile, number: int, test: rule_unit_tests.RuleUnitTest) -> dict[str, Any]:
    name = f"{number} {test.rule}" + (f": {test.name}" if test.name else "")
    ready = found.rules.get(test.rule)
    if ready is None:
        return {"test": name, "ok": False, "differences": [f"there is no rule {test.rule!r} here"]}
    try:
        differences = [str(each) for each in rule_unit_tests.run(ready, test)]
    except InvalidRuleError as error:
        differences = [str(problem) for problem in error.problems]
    return {"test": name, "ok": not differences, "differences": differences}


def _pack(asked: argparse.Namespace) -> int:
    print(PACK.read_text(), end="")
    return ExitCode.OK


def _good(asked: argparse.Namespace) -> RulesFile | None:
    """None: it was said what is wrong in it."""
    found = _read(asked.file)
    if found.faults:
        _check(asked)
        return None
    return found


def _backtest(asked: argparse.Namespace) -> int:
    found = _good(asked)
    return ExitCode.FAILED if found is None else backtest(asked, found)


def _import(asked: argparse.Namespace) -> int:
    found = _good(asked)
    return ExitCode.FAILED if found is None else take_in(asked, found)


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "check": _check, "test": _test, "pack": _pack, "backtest": _backtest, "import": _import,
    "export": give_out}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("rules", "Rules as files: whether they are well written, and "
                                         "whether they do what their tests say.")
    for verb, says in (("check", "names everything that is wrong in a file"),
                       ("test", "runs the tests that stand in the file beside the rules")):
        made = verbs.add_parser(verb, help=says, description=says, allow_abbrev=False)
        made.add_argument("file", type=Path, help="YAML; - reads standard input")
        made.add_argument("--json", action="store_true", help="as JSON")
    says = "prints the rules that come with gpudeck, with their tests"
    verbs.add_parser("pack", help=says, description=says, allow_abbrev=False)
    _add_hub_verbs(verbs)
    return parser


def _add_hub_verbs(verbs: Any) -> None:
    says = "rehearses the rules of a file on the past that a hub keeps"
    tried = verbs.add_parser("backtest", help=says, description=says, allow_abbrev=False)
    tried.add_argument("file", type=Path, help="YAML; - reads standard input")
    tried.add_argument("--rule", metavar="ID", help="only this one")
    tried.add_argument("--start", default="24h", metavar="TIME",
                       help="24h or 7d (so long ago), UTC seconds, or RFC 3339; default: 24h")
    tried.add_argument("--end", default="now", metavar="TIME", help="default: now")
    says = "puts the rules of a file into a hub; a rule that comes in only observes"
    taken = verbs.add_parser("import", help=says, description=says, allow_abbrev=False)
    taken.add_argument("file", type=Path, help="YAML; - reads standard input")
    says = "prints the rules of a hub as a file"
    given = verbs.add_parser("export", help=says, description=says, allow_abbrev=False)
    for made in (tried, taken, given):
        add_reach(made)
        if made is not given:
            made.add_argument("--json", action="store_true", help="as JSON")
