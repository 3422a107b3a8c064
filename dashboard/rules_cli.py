"""`gpudeck rules check|test|export`: rules as files, without a hub."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpudeck.errors import CommandError, ExitCode

from .access_cli import make_parser
from .core.alerts import drill
from .core.alerts.rule import RuleProblems
from .rules_file import PACK, RulesFile, parse


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
        return f"{len(found.faults)} faults; nothing of this file would be taken"
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


def _result(found: RulesFile, number: int, test: drill.Drill) -> dict[str, Any]:
    name = f"{number} {test.rule}" + (f": {test.name}" if test.name else "")
    ready = found.rules.get(test.rule)
    if ready is None:
        return {"test": name, "ok": False, "differences": [f"there is no rule {test.rule!r} here"]}
    try:
        differences = [str(each) for each in drill.run(ready, test)]
    except RuleProblems as error:
        differences = [str(problem) for problem in error.problems]
    return {"test": name, "ok": not differences, "differences": differences}


def _pack(asked: argparse.Namespace) -> int:
    print(PACK.read_text(), end="")
    return ExitCode.OK


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "check": _check, "test": _test, "pack": _pack}


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
    return parser
