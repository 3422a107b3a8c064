"""`gpudeck rules`: rules as files, without a hub, and the rules of a hub."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpudeck.client.hub import add_hub_flags
from gpudeck.errors import CommandError, ExitCode

from ..alerts.core import rule_unit_tests
from ..alerts.core.rule import CompiledRule, InvalidRuleError
from ..alerts.rules_file import PACK, RulesFile, parse
from ..alerts.views import rung_checks
from .parts import make_parser
from .rules_hub import add_reach, backtest, export_rules, findings_of_hub, import_rules

Verb = Callable[[argparse.Namespace], int]


def rules(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    return VERBS[args.verb][0](args)


def _read(path: Path | None) -> RulesFile:
    try:
        text = sys.stdin.read() if path == Path("-") else (path or PACK).read_text()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not a text file in UTF-8") from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    return parse(text)


def _check(args: argparse.Namespace) -> int:
    """Check a file, and whether its ladder steps would be refused: by the file alone or, with a
    hub, by its current fleet."""
    file = _read(args.file)
    check_rule = _rungs if args.hub is None or file.faults else findings_of_hub(args)
    findings = [(rule_id, *check_rule(ready)) for rule_id, ready in file.rules.items()]
    return _report(
        args, file,
        [(rule_id, message) for rule_id, refusals, _ in findings for message in refusals],
        [(rule_id, warning) for rule_id, _, warning in findings if warning])


def _rungs(ready: CompiledRule) -> tuple[list[str], str]:
    checks = rung_checks([do for do, _ in ready.steps], (), "")
    return [check.sentence for check in checks], ""


def _report(args: argparse.Namespace, file: RulesFile, refusals: Sequence[tuple[str, str]] = (),
            warnings: Sequence[tuple[str, str]] = ()) -> int:
    if args.json:
        print(json.dumps({"rules": list(file.rules), "faults": [
            {"line": fault.line, "who": fault.subject, "message": fault.message}
            for fault in file.faults], "refused": [
            {"who": rule_id, "message": message} for rule_id, message in refusals], "warnings": [
            {"who": rule_id, "message": message} for rule_id, message in warnings]}, indent=2))
    else:
        lines = [*map(str, file.faults), *(f"{rule_id}: {message}" for rule_id, message in (
            *refusals, *warnings))]
        print(*lines, sep="\n", end="\n" * bool(lines))
        print(_summary(file))
    return ExitCode.OK if not file.faults else ExitCode.FAILED


def _summary(file: RulesFile) -> str:
    if file.faults:
        number = len(file.faults)
        return f"{number} fault{'s' * (number != 1)}; nothing of this file would be accepted"
    return f"{len(file.rules)} rules and {len(file.unit_tests)} tests are valid"


def _test(args: argparse.Namespace, file: RulesFile) -> int:
    results = [_result(file, number, drill) for number, drill in enumerate(file.unit_tests, 1)]
    if args.json:
        print(json.dumps(results, indent=2))
    else:
        for result in results:
            print("ok  " if result["ok"] else "NOT ", result["test"])
            print(*(f"       {line}" for line in result["differences"]), sep="\n",
                  end="\n" * bool(result["differences"]))
        print(f"{sum(result['ok'] for result in results)} of {len(results)} tests pass")
    return ExitCode.OK if results and all(result["ok"] for result in results) else ExitCode.FAILED


def _result(file: RulesFile, number: int, test: rule_unit_tests.RuleUnitTest) -> dict[str, Any]:
    name = f"{number} {test.rule}" + (f": {test.name}" if test.name else "")
    ready = file.rules.get(test.rule)
    if ready is None:
        return {"test": name, "ok": False, "differences": [f"there is no rule {test.rule!r} here"]}
    try:
        differences = [str(difference) for difference in rule_unit_tests.run(ready, test)]
    except InvalidRuleError as error:
        differences = [str(problem) for problem in error.problems]
    return {"test": name, "ok": not differences, "differences": differences}


def _pack(args: argparse.Namespace) -> int:
    print(PACK.read_text(), end="")
    return ExitCode.OK


def _if_valid(action: Callable[[argparse.Namespace, RulesFile], int]) -> Verb:
    """Return a verb that does the action if the file is valid, and else reports its faults."""
    def verb(args: argparse.Namespace) -> int:
        file = _read(args.file)
        return _report(args, file) if file.faults else action(args, file)

    return verb


VERBS: dict[str, tuple[Verb, str]] = {
    "check": (_check, "list all errors in a file"),
    "test": (_if_valid(_test), "run the tests in the file"),
    "pack": (_pack, "print the rules shipped with gpudeck, with their tests"),
    "backtest": (_if_valid(backtest), "rehearse the rules of a file on a hub's history"),
    "import": (_if_valid(import_rules),
               "import the rules of a file into a hub; new rules only observe"),
    "export": (export_rules, "print the rules of a hub as a file"),
}


def _parser() -> argparse.ArgumentParser:
    verbs, parser = make_parser("rules", "Rules as files: check their syntax and run their tests.")
    parsers = {name: verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
               for name, (_, text) in VERBS.items()}
    for name in ("check", "test", "backtest", "import"):
        parsers[name].add_argument("file", type=Path, help="YAML; - reads standard input")
    backtest_parser = parsers["backtest"]
    backtest_parser.add_argument("--rule", metavar="ID", help="only this one")
    backtest_parser.add_argument(
        "--start", default="24h", metavar="TIME",
        help="24h or 7d (that long ago), UTC seconds, or RFC 3339; default: 24h")
    backtest_parser.add_argument("--end", default="now", metavar="TIME", help="default: now")
    add_hub_flags(parsers["check"], {}, "a hub: also report which rules match nothing there, and "
                  "which ladder steps would be refused")
    for name in ("backtest", "import", "export"):
        add_reach(parsers[name])
    for name in ("check", "test", "backtest", "import"):
        parsers[name].add_argument("--json", action="store_true", help="as JSON")
    return parser
