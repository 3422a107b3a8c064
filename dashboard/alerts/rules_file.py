"""Rules as YAML: read strictly, reporting the line of each mistake."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.language import strict_yaml
from gpudeck.language.strict_yaml import InvalidYamlError

from .core import rule, rule_unit_tests
from .core.rule import CompiledRule, InvalidRuleError
from .core.rule_unit_tests import RuleUnitTest

MOST_BYTES = 1_000_000
MOST_RULES = 500
PACK = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True, slots=True)
class RulesFileProblem:
    """A mistake in a rules file; `subject`: the rule or test."""

    line: int | None
    subject: str
    message: str

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.subject + ': ' if self.subject else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class RulesFile:
    rules: dict[str, CompiledRule]
    unit_tests: tuple[RuleUnitTest, ...]
    faults: tuple[RulesFileProblem, ...]


def parse(text: str) -> RulesFile:
    """Read a rules file and report every mistake in it at once."""
    if len(text.encode()) > MOST_BYTES:
        return _unreadable(None, f"a file has at most {MOST_BYTES} bytes")
    try:
        data = strict_yaml.load(text)
    except InvalidYamlError as error:
        return _unreadable(error.line, f"this is not YAML: {error}")
    if not isinstance(data, dict) or not set(data) <= {"rules", "tests"} or "rules" not in data:
        return _unreadable(None, "a rules file has 'rules:' and optionally 'tests:'; nothing else")
    return _checked(data, text)


def _unreadable(line: int | None, why: str) -> RulesFile:
    return RulesFile({}, (), (RulesFileProblem(line, "", why),))


def _checked(data: dict[str, Any], text: str) -> RulesFile:
    faults: list[RulesFileProblem] = []
    rules: dict[str, CompiledRule] = {}
    for number, entry in enumerate(_list(data, "rules", faults)[:MOST_RULES]):
        _read_rule(entry, number, text, rules, faults)
    unit_tests = []
    for number, entry in enumerate(_list(data, "tests", faults)):
        try:
            unit_tests.append(rule_unit_tests.read(entry))
        except InvalidRuleError as error:
            faults += [RulesFileProblem(None, f"tests[{number}]", str(problem))
                       for problem in error.problems]
    return RulesFile(rules, tuple(unit_tests), tuple(faults))


def _list(data: dict[str, Any], name: str, faults: list[RulesFileProblem]) -> list[Any]:
    entries = data.get(name)
    if entries is None:
        return []
    if not isinstance(entries, list):
        faults.append(RulesFileProblem(None, name, "is a list: begin each with '- '"))
        return []
    if len(entries) > MOST_RULES:
        faults.append(RulesFileProblem(None, name, f"more than {MOST_RULES}"))
    return entries


def _read_rule(entry: Any, number: int, text: str, rules: dict[str, CompiledRule],
               faults: list[RulesFileProblem]) -> None:
    subject = str(entry.get("id", f"rules[{number}]")) if isinstance(entry, dict) else (
        f"rules[{number}]")
    line = _line_of(text, subject)
    try:
        ready = rule.check(rule.read(entry))
    except InvalidRuleError as error:
        faults += [RulesFileProblem(line, subject, str(problem)) for problem in error.problems]
        return
    if ready.rule.id in rules:
        faults.append(RulesFileProblem(line, subject, "is there twice"))
    rules[ready.rule.id] = ready


def _line_of(text: str, rule_id: str) -> int | None:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip("- ").replace('"', "").replace("'", "").strip() == f"id: {rule_id}":
            return number
    return None


def one_rule(text: str) -> Any:
    """Return the fields of the only rule in `text`, with or without `rules:` around it."""
    try:
        data = strict_yaml.load(text)
    except InvalidYamlError as error:
        line = "" if error.line is None else f"line {error.line}: "
        raise rule.invalid("yaml", f"{line}{error}") from None
    if isinstance(data, dict) and set(data) == {"rules"}:
        data = data["rules"]
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    if not isinstance(data, dict):
        raise rule.invalid("yaml", "one rule is expected here, as `field: value` on separate lines")
    return data


def dump_one(definition: rule.Rule) -> str:
    return strict_yaml.dump(_short(definition), 80)


def dump(rules: list[rule.Rule]) -> str:
    """Return rules as YAML as a person would write them: defaults are left out."""
    return strict_yaml.dump({"rules": list(map(_short, rules))}, 100)


def _short(definition: rule.Rule) -> dict[str, Any]:
    plain = {"for" if field == "for_" else field: default for field, default in zip(
        definition.__struct_fields__[-len(definition.__struct_defaults__):],
        definition.__struct_defaults__, strict=True)}
    return {key: value for key, value in msgspec.to_builtins(definition).items()
            if key not in plain or value != msgspec.to_builtins(plain[key])}
