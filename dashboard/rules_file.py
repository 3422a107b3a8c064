"""Rules as YAML: read strictly, with the line of what is wrong. The only file that knows YAML."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from .core.alerts import drill, rule
from .core.alerts.drill import Drill
from .core.alerts.rule import Ready, RuleProblems

MOST_BYTES = 1_000_000
MOST_RULES = 500
PACK = Path(__file__).with_name("rules.yaml")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file; `who`: the rule or test."""

    line: int | None
    who: str
    message: str

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.who + ': ' if self.who else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class RulesFile:
    rules: dict[str, Ready]
    drills: tuple[Drill, ...]
    faults: tuple[Fault, ...]


class _Loader(yaml.SafeLoader):
    """Nothing that is not data: no aliases, which can make a file of 1 kB one of 1 GB; no key
    twice, of which YAML takes the last without a word."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not taken",
                                       problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} stands here twice",
                                           problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


# `no`, `on` and 12:30:00 are words and times to people, not booleans and numbers in base 60.
for first in "yYnNoO":
    _Loader.yaml_implicit_resolvers[first] = [
        (tag, how) for tag, how in _Loader.yaml_implicit_resolvers.get(first, [])
        if tag != "tag:yaml.org,2002:bool"]


def parse(text: str) -> RulesFile:
    """Everything that is wrong at once."""
    if len(text.encode()) > MOST_BYTES:
        return RulesFile({}, (), (Fault(None, "", f"a file has at most {MOST_BYTES} bytes"),))
    try:
        data = yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return RulesFile({}, (), (Fault(None if mark is None else mark.line + 1, "",
                                        f"this is not YAML: {error.problem}"),))
    except (yaml.YAMLError, RecursionError) as error:
        return RulesFile({}, (), (Fault(None, "", f"this is not YAML: {error}"),))
    return _checked(data, text)


def _checked(data: Any, text: str) -> RulesFile:
    if not isinstance(data, dict) or not set(data) <= {"rules", "tests"} or "rules" not in data:
        return RulesFile({}, (), (Fault(None, "", "a file of rules has 'rules:', and may have "
                                                  "'tests:'; nothing else"),))
    faults: list[Fault] = []
    rules: dict[str, Ready] = {}
    for number, given in enumerate(_list(data, "rules", faults)[:MOST_RULES]):
        _read_rule(given, number, text, rules, faults)
    drills = []
    for number, given in enumerate(_list(data, "tests", faults)):
        try:
            drills.append(drill.read(given))
        except RuleProblems as error:
            faults += [Fault(None, f"tests[{number}]", str(each)) for each in error.problems]
    return RulesFile(rules, tuple(drills), tuple(faults))


def _list(data: dict[str, Any], name: str, faults: list[Fault]) -> list[Any]:
    found = data.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        faults.append(Fault(None, name, "is a list: begin each with '- '"))
        return []
    if len(found) > MOST_RULES:
        faults.append(Fault(None, name, f"more than {MOST_RULES}"))
    return found


def _read_rule(given: Any, number: int, text: str, rules: dict[str, Ready], faults: list[Fault]
               ) -> None:
    who = str(given.get("id", f"rules[{number}]")) if isinstance(given, dict) else (
        f"rules[{number}]")
    line = _line_of(text, who)
    try:
        ready = rule.check(rule.read(given))
    except RuleProblems as error:
        faults += [Fault(line, who, str(each)) for each in error.problems]
        return
    if ready.rule.id in rules:
        faults.append(Fault(line, who, "is there twice"))
    rules[ready.rule.id] = ready


def _line_of(text: str, rule_id: str) -> int | None:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip("- ").replace('"', "").replace("'", "").strip() == f"id: {rule_id}":
            return number
    return None


def one_rule(text: str) -> Any:
    """The fields of the one Rule that is written there, with or without `rules:` around it."""
    try:
        data = yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise rule.RuleProblems([rule.Problem("yaml", f"{line}{error.problem}")]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise rule.RuleProblems([rule.Problem("yaml", str(error))]) from None
    if isinstance(data, dict) and set(data) == {"rules"}:
        data = data["rules"]
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    if not isinstance(data, dict):
        raise rule.RuleProblems([rule.Problem("yaml", "one rule is expected here, as `field: "
                                                      "value` on lines of its own")])
    return data


def dump_one(of: rule.Rule) -> str:
    text: str = yaml.safe_dump(_short(of, msgspec.to_builtins(of)), sort_keys=False,
                               allow_unicode=True, width=80)
    return text


def dump(rules: list[rule.Rule]) -> str:
    """As it would be written by hand: what is as it is anyway is left out."""
    return yaml.safe_dump({"rules": [_short(each, msgspec.to_builtins(each)) for each in rules]},
                          sort_keys=False, allow_unicode=True, width=100)


def _short(of: rule.Rule, data: dict[str, Any]) -> dict[str, Any]:
    plain = {"for" if field == "for_" else field: default for field, default in zip(
        of.__struct_fields__[-len(of.__struct_defaults__):], of.__struct_defaults__, strict=True)}
    return {key: value for key, value in data.items()
            if key not in plain or value != msgspec.to_builtins(plain[key])}
