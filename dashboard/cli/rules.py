"""`gpudeck rules`: rules as files, without a hub; and those of a hub."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpudeck.client import add_hub_flags
from gpudeck.errors import CommandError, ExitCode

from ..alerts.core import rule_unit_tests
from ..alerts.core.rule import CompiledRule, InvalidRuleError
from ..alerts.rules_file import PACK, RulesFile, parse
from ..alerts.views import rung_checks
from .parts import make_parser
from .rules_hub import add_reach, backtest, findings_of_hub, give_out, take_in

Verb = Callable[[argparse.Namespace], int]


def rules(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(list(argv))
    return VERBS[asked.verb][0](asked)


def _read(path: Path | None) -> RulesFile:
    try:
        text = sys.stdin.read() if path == Path("-") else (path or PACK).read_text()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not a text file in UTF-8") from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    return parse(text)


def _check(asked: argparse.Namespace) -> int:
    """Whether what it would do can be done: by the file alone, or as the fleet of a hub is now."""
    found = _read(asked.file)
    ask = _rungs if asked.hub is None or found.faults else findings_of_hub(asked)
    told = [(rule_id, *ask(ready)) for rule_id, ready in found.rules.items()]
    return _told(asked, found,
                 [(rule_id, said) for rule_id, refused, _ in told for said in refused],
                 [(rule_id, said) for rule_id, _, said in told if said])


def _rungs(ready: CompiledRule) -> tuple[list[str], str]:
    checks = rung_checks([do for do, _ in ready.steps], (), "")
    return [each.sentence for each in checks], ""


def _told(asked: argparse.Namespace, found: RulesFile, refused: Sequence[tuple[str, str]] = (),
          warnings: Sequence[tuple[str, str]] = ()) -> int:
    if asked.json:
        print(json.dumps({"rules": list(found.rules), "faults": [
            {"line": fault.line, "who": fault.subject, "message": fault.message}
            for fault in found.faults], "refused": [
            {"who": who, "message": said} for who, said in refused], "warnings": [
            {"who": who, "message": said} for who, said in warnings]}, indent=2))
    else:
        lines = [*map(str, found.faults), *(f"{who}: {said}" for who, said in (
            *refused, *warnings))]
        print(*lines, sep="\n", end="\n" * bool(lines))
        print(_counted(found))
    return ExitCode.OK if not found.faults else ExitCode.FAILED


def _counted(found: RulesFile) -> str:
    if found.faults:
        number = len(found.faults)
        return f"{number} fault{'s' * (number != 1)}; nothing of this file would be accepted"
    return f"{len(found.rules)} rules and {len(found.unit_tests)} tests are valid"


def _test(asked: argparse.Namespace, found: RulesFile) -> int:
    results = [_result(found, number, each) for number, each in enumerate(found.unit_tests, 1)]
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


def _if_good(do: Callable[[argparse.Namespace, RulesFile], int]) -> Verb:
    """Else it says what is wrong in the file."""
    def verb(asked: argparse.Namespace) -> int:
        found = _read(asked.file)
        return _told(asked, found) if found.faults else do(asked, found)

    return verb


VERBS: dict[str, tuple[Verb, str]] = {
    "check": (_check, "list all errors in a file"),
    "test": (_if_good(_test), "run the tests in the file"),
    "pack": (_pack, "print the rules shipped with gpudeck, with their tests"),
    "backtest": (_if_good(backtest), "rehearse the rules of a file on a hub's history"),
    "import": (_if_good(take_in), "import the rules of a file into a hub; new rules only observe"),
    "export": (give_out, "print the rules of a hub as a file"),
}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("rules", "Rules as files: check their syntax and run their tests.")
    made = {name: verbs.add_parser(name, help=says, description=says, allow_abbrev=False)
            for name, (_, says) in VERBS.items()}
    for name in ("check", "test", "backtest", "import"):
        made[name].add_argument("file", type=Path, help="YAML; - reads standard input")
    tried = made["backtest"]
    tried.add_argument("--rule", metavar="ID", help="only this one")
    tried.add_argument("--start", default="24h", metavar="TIME",
                       help="24h or 7d (that long ago), UTC seconds, or RFC 3339; default: 24h")
    tried.add_argument("--end", default="now", metavar="TIME", help="default: now")
    add_hub_flags(made["check"], {}, "a hub: also report which rules match nothing there, and "
                  "which ladder steps would be refused")
    for name in ("backtest", "import", "export"):
        add_reach(made[name])
    for name in ("check", "test", "backtest", "import"):
        made[name].add_argument("--json", action="store_true", help="as JSON")
    return parser
