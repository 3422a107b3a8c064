"""Verdicts of the scale matrix (tests/faults/scale): what is lost or doubled fails its row."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.scale.count import Numbers, SampleCount
from tests.faults.scale.matrix import Outcome, Row


def numbers(*values: int) -> Numbers:
    return Counter(("GPU-n1-0", value) for value in values)


@pytest.mark.parametrize(("there", "missing", "duplicates"), [
    (numbers(1, 2, 3), [], []),
    (numbers(1, 3), [2], []),
    (numbers(1, 2, 2, 3), [], [2]),
    (numbers(1, 2, 3, 9), [], [9]),  # it was never taken
])
def test_samples_are_counted(there: Numbers, missing: list[int], duplicates: list[int]) -> None:
    count = SampleCount(numbers(1, 2, 3), there)
    assert [[number for _, number in keys] for keys in (count.missing, count.duplicates)
            ] == [missing, duplicates]


WHOLE = Row("PostgreSQL killed", 10.0, 40.0, blind_s=3.0, within_s=10.0,
            first_broken_record=None, failed_orders=7, samples=240,
            commands={"done": 30, "expired": 1})


def test_a_row_without_a_flaw() -> None:
    outcome = Outcome([WHOLE], WHOLE.flaws)
    assert outcome.flaws == []
    assert "whole  3.0 s\n" in outcome.table
    assert outcome.table.endswith("\nno flaw")


@pytest.mark.parametrize(("row", "flaw"), [
    (replace(WHOLE, samples=0), "no sample"),
    (replace(WHOLE, missing=1), "samples missing"),
    (replace(WHOLE, duplicates=1), "samples doubled"),
    (replace(WHOLE, commands={}), "no command"),
    (replace(WHOLE, commands={"done": 30, "sent": 1}), "commands without an end"),
    (replace(WHOLE, duplicate_commands=1), "commands doubled"),
    (replace(WHOLE, first_broken_record={"seq": 4}), "audit log broken"),
    (replace(WHOLE, blind_s=10.1), "not seen in time"),
])
def test_each_flaw_fails_its_row(row: Row, flaw: str) -> None:
    assert row.flaws == [f"PostgreSQL killed: {flaw}"]
