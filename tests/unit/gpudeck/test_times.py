"""Moments as people write them."""

from datetime import datetime, timedelta, timezone

import pytest

from gpudeck.times import parse_until

NOW = datetime(2026, 11, 21, 17, 30, 12, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(("word", "wanted"), [
    ("18:00", datetime(2026, 11, 21, 18, 0, tzinfo=NOW.tzinfo)),
    ("17:30", datetime(2026, 11, 22, 17, 30, tzinfo=NOW.tzinfo)),
    ("6:05", datetime(2026, 11, 22, 6, 5, tzinfo=NOW.tzinfo)),
    ("+90min", NOW + timedelta(minutes=90)), ("+2h", NOW + timedelta(hours=2)),
    ("+1d", NOW + timedelta(days=1)),
    ("2026-11-22T18:00", datetime(2026, 11, 22, 18, 0, tzinfo=NOW.tzinfo)),
    ("2026-11-22T18:00Z", datetime(2026, 11, 22, 19, 0, tzinfo=NOW.tzinfo)),
])
def test_moments(word: str, wanted: datetime) -> None:
    assert parse_until(word, NOW) == wanted.timestamp()


@pytest.mark.parametrize("word", ["", "soon", "24:00", "12:60", "2h", "-2h", "2026-11-21T17:00"])
def test_what_is_no_moment_to_come(word: str) -> None:
    with pytest.raises(ValueError, match=r"give a time|no such time|over already"):
        parse_until(word, NOW)
