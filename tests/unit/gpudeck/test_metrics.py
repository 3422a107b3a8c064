"""The table of metrics is consistent with itself and with what the issue promises."""

import pytest

from gpudeck.measures.metrics import (
    ABSENCE_MEANING,
    COLUMN,
    COLUMNS,
    LIVE,
    MAXIMA,
    Absence,
    metric,
    throttle_words,
)


def test_fourteen_live_metrics_with_maxima_for_two() -> None:
    assert len(LIVE) == 14
    assert [m.key for m in MAXIMA] == ["util_max_pct", "power_max_w"]


@pytest.mark.parametrize("field", ["key", "label", "meaning", "filter_name"])
def test_names_are_unique_and_there(field: str) -> None:
    names = [getattr(m, field) for m in COLUMNS]
    assert all(names)
    assert len(set(names)) == len(names)


def test_ranges_are_ranges() -> None:
    assert [m.key for m in COLUMNS if m.low >= m.high] == []


def test_each_prometheus_name_stands_once() -> None:
    names = [m.prometheus for m in COLUMNS if m.prometheus]
    assert len(set(names)) == len(names)


def test_lookup() -> None:
    assert metric("util_pct") is COLUMNS[COLUMN["util_pct"]]


def test_every_absence_is_explained() -> None:
    assert set(ABSENCE_MEANING) == set(Absence) - {Absence.PRESENT}


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0, []), (1, ["idle"]), (0x44, ["software power cap", "hardware thermal slowdown"]),
     (0x4000_0004, ["software power cap", "unknown (0x40000000)"])],
)
def test_throttle_words(bits: int, words: list[str]) -> None:
    assert throttle_words(bits) == words
