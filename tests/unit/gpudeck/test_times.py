"""Moments as people write them."""

from datetime import datetime, timedelta, timezone

import pytest

from gpudeck.language.sizes import parse_size
from gpudeck.language.times import moment_of, parse_seconds, parse_span, parse_until

NOW = datetime(2026, 11, 21, 17, 30, 12, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(("word", "moment"), [
    ("18:00", datetime(2026, 11, 21, 18, 0, tzinfo=NOW.tzinfo)),
    ("17:30", datetime(2026, 11, 22, 17, 30, tzinfo=NOW.tzinfo)),
    ("6:05", datetime(2026, 11, 22, 6, 5, tzinfo=NOW.tzinfo)),
    ("+90min", NOW + timedelta(minutes=90)), ("+2h", NOW + timedelta(hours=2)),
    ("+1d", NOW + timedelta(days=1)),
    ("2026-11-22T18:00", datetime(2026, 11, 22, 18, 0, tzinfo=NOW.tzinfo)),
    ("2026-11-22T18:00Z", datetime(2026, 11, 22, 19, 0, tzinfo=NOW.tzinfo)),
])
def test_moments(word: str, moment: datetime) -> None:
    assert parse_until(word, NOW) == moment.timestamp()


@pytest.mark.parametrize("word", ["", "soon", "24:00", "12:60", "2h", "-2h", "2026-11-21T17:00"])
def test_what_is_no_moment_to_come(word: str) -> None:
    with pytest.raises(ValueError, match=r"give a time|no such time|in the past"):
        parse_until(word, NOW)


@pytest.mark.parametrize(("word", "wanted_s"), [
    ("90s", 90.0), ("30m", 1_800.0), ("30min", 1_800.0), ("1.5h", 5_400.0), (" 1 d ", 86_400.0)])
def test_a_span_means_the_same_everywhere(word: str, wanted_s: float) -> None:
    assert parse_span(word) == parse_seconds(word) == wanted_s
    assert moment_of(word, 1e9) == 1e9 - wanted_s
    assert parse_until(f"+{word}", NOW) == NOW.timestamp() + wanted_s


def test_a_bare_number_is_seconds_where_a_flag_always_took_them() -> None:
    assert parse_seconds("30") == 30.0
    for word in ("30", "", "1w", "-1h", "\u0663h", "nan", "1e3s"):
        with pytest.raises(ValueError, match="not a span of time"):
            parse_span(word)


def test_g_is_gib_and_gb_is_decimal() -> None:
    assert parse_size("80G") == parse_size("80GiB") == 80 * 2**30
    assert parse_size("80GB") == 80 * 10**9
    for word in ("80", "80Gb", "G", "1e3G", "\u0668G"):
        with pytest.raises(ValueError, match="not a size"):
            parse_size(word)
