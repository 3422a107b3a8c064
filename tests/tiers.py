"""Which tests run when. Each is in one tier: `test` (minutes, for every change), `check` (the rest
of what must pass before a change lands) or `soak` (hours; marked in its file).

A row is the beginning of tests' names: a folder, a file, a test, or one of its parameters. The
longest row that fits counts, and what no row fits is of `test`.
"""

from collections import Counter
from typing import Literal

import pytest

Tier = Literal["test", "check", "soak"]
COLLECTED = pytest.StashKey[Counter[str]]()  # how many of each in this run, and `all`

# By kind: what drives a browser, a notebook, a demo, a card, or breaks processes; or by duration.
CHECK = (
    "tests/browser/",
    "tests/faults/",
    "tests/gpu/",
    "tests/notebook/",
    "tests/unit/test_mutants.py::test_some_by_lot_are_caught",
    "tests/unit/test_mutants.py::test_a_mutant_that_removes_no_guard_is_missed",
)
# One real path each, of what is otherwise checked before landing.
TEST = (
    "tests/browser/test_fleet_page.py::test_what_control_sets_is_what_the_page_and_the_api_show",
    "tests/notebook/test_notebook7.py::test_a_simulation_works_whole",
)
ROWS: dict[str, Tier] = {**dict.fromkeys(CHECK, "check"), **dict.fromkeys(TEST, "test")}


def tier_of(test: str, is_soak: bool) -> Tier:
    if is_soak:
        return "soak"
    fitting = [row for row in ROWS if test.startswith(row)]
    return ROWS[max(fitting, key=len)] if fitting else "test"
