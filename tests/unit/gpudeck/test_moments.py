"""Moments as people say them at a terminal."""

import time

import pytest

from gpudeck.errors import CommandError
from gpudeck.language.times import moment_of

NOW = time.time()


@pytest.mark.parametrize(("text", "ago_s"), [
    ("now", 0.0), ("90s", 90.0), ("24h", 86_400.0), ("7d", 604_800.0), (" 5 m ", 300.0)])
def test_so_long_ago(text: str, ago_s: float) -> None:
    assert abs(NOW - ago_s - moment_of(text, NOW)) < 0.001


@pytest.mark.parametrize(("text", "at"), [
    ("1763640000", 1_763_640_000.0), ("1763640000.5", 1_763_640_000.5),
    ("2025-11-20T12:00:00Z", 1_763_640_000.0), ("2025-11-20T12:00:00", 1_763_640_000.0),
    ("2025-11-20T13:00:00+01:00", 1_763_640_000.0), ("2025-11-20", 1_763_596_800.0)])
def test_a_moment_is_in_utc_without_a_zone(text: str, at: float) -> None:
    assert moment_of(text, NOW) == at


@pytest.mark.parametrize("text", ["", "banana", "12", "-5m", "1_0h", "\u0662h", "99999999999999d",
                                  "2025-13-01", "nan", "inf"])
def test_what_is_no_time_is_told(text: str) -> None:
    with pytest.raises(CommandError, match="is not a time: write 24h"):
        moment_of(text, NOW)
