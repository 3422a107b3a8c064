"""docs/internals/pitfalls.md: each pitfall, trap and promise has what is done about it, and a
test."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/internals/pitfalls.md"
PROMISED = re.compile(r"\b(later: |not yet|yet\b|not built|will (say|be|give))")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if re.match(r"\| (?:\d+|[A-EP]\b)", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@cache
def found_in(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text()))
                     if isinstance(node, ast.FunctionDef))


def fault_of(row: list[str]) -> str:
    if len(row) != 4 or not all(row):
        return "it has an empty or a missing cell"
    if PROMISED.search(row[2]) is not None:
        return "it says what will be done, and not what is"
    for item in row[3].split("<br>"):
        if (cited := NAMED.fullmatch(item)) is None:
            return f"{item!r} is no test"
        if cited[2] not in found_in(cited[1]):
            return f"there is no {item}"
    return ""


@pytest.mark.parametrize("row", rows(PAGE.read_text()), ids=lambda row: row[0])
def test_each_has_what_is_done_and_a_test_that_exists(row: list[str]) -> None:
    assert fault_of(row) == ""


def test_none_is_left_out() -> None:
    names = [row[0] for row in rows(PAGE.read_text())]
    assert len(set(names)) == len(names)
    assert [int(name) for name in names if name.isdigit()] == list(range(1, 30))
    for part, least in (("A.1 ", 19), ("A.2 ", 20), ("A.3 ", 8), ("A.5 ", 3), ("A.6 ", 4),
                        ("E ", 14), ("P ", 24)):
        assert sum(name.startswith(part) for name in names) >= least, part


@pytest.mark.parametrize("line", [
    "| 1 | a | b |  |", "| 1 | a |  | `tests/unit/test_pitfalls.py::test_none_is_left_out` |",
    "| 1 | a | b | `tests/unit/test_pitfalls.py::test_of_nothing` |", "| 1 | a | b | later: x |",
    "| 1 | a | b | `tests/unit/test_gone.py::test_none_is_left_out` |", "| 1 | a | b | soon |",
    "| 1 | a | not built yet | `tests/unit/test_pitfalls.py::test_none_is_left_out` |",
    "| 1 | a | units will give it | `tests/unit/test_pitfalls.py::test_none_is_left_out` |",
])
def test_a_bad_row_is_seen(line: str) -> None:
    """The control arm."""
    assert fault_of(rows(line)[0]) != ""
