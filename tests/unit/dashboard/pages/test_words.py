"""Words of pages that Python writes: those of assets/parts/format.mjs, which wrote these rows."""

import pytest

from dashboard.pages.words import (
    age,
    amount,
    bytes_words,
    capital,
    moment,
    plural,
    sentence,
    until_words,
    when,
    zone_words,
)

NOW = 1_795_960_800.0  # 29 Nov 2026, 14:00 UTC


@pytest.mark.parametrize(("value", "whole", "one", "two"), [
    (0, "0", "0.0", "0.00"), (0.4, "0", "0.4", "0.40"), (0.5, "1", "0.5", "0.50"),
    (1.5, "2", "1.5", "1.50"), (2.5, "3", "2.5", "2.50"), (999.5, "1,000", "999.5", "999.50"),
    (1234.5, "1,235", "1,234.5", "1,234.50"), (1e6, "1,000,000", "1,000,000.0", "1,000,000.00"),
    (-0.2, "0", "-0.2", "-0.20"), (-3.7, "-4", "-3.7", "-3.70")])
def test_amounts(value: float, whole: str, one: str, two: str) -> None:
    assert (amount(value), amount(value, 1), amount(value, 2)) == (whole, one, two)


@pytest.mark.parametrize(("size", "words"), [
    (None, "\N{EN DASH}"), (0, "0.0 GiB"), (1e6, "<1 MiB"), (1e7, "10 MiB"),
    (5.25 * 2**30, "5.3 GiB"), (80 * 2**30, "80.0 GiB"), (640 * 2**30, "640 GiB"),
    (2e4 * 2**30, "19.5 TiB")])
def test_sizes(size: float | None, words: str) -> None:
    assert bytes_words(size) == words


@pytest.mark.parametrize(("seconds", "words"), [
    (None, "never"), (-1, "0.0 s"), (0, "0.0 s"), (9.94, "9.9 s"), (10, "10 s"), (119.4, "119 s"),
    (120, "2 min"), (7_199, "120 min"), (7_200, "2 h"), (172_799, "48 h"), (172_800, "2 d")])
def test_spans(seconds: float | None, words: str) -> None:
    assert age(seconds) == words


def test_moments_are_of_the_viewers_zone() -> None:
    assert moment(NOW, "UTC") == "29 Nov 2026, 14:00"
    assert moment(NOW, "Europe/Berlin") == "29 Nov 2026, 15:00"
    assert moment(NOW, "Asia/Kolkata") == "29 Nov 2026, 19:30"
    assert until_words(NOW + 3_600, NOW, "Europe/Berlin") == "16:00"
    assert until_words(NOW + 36_000, NOW, "Europe/Berlin") == "Mon 30 Nov, 01:00"
    assert [zone_words(NOW, zone) for zone in ("UTC", "Europe/Berlin", "America/New_York",
                                               "Asia/Kolkata")] == [
        "UTC", "Europe/Berlin, UTC+1", "America/New York, UTC\N{MINUS SIGN}5",
        "Asia/Kolkata, UTC+5:30"]


def test_a_name_keeps_its_letters_at_the_start_of_a_sentence() -> None:
    assert [sentence(text) for text in ("vLLM fills it", "the rest", "GPU 5", "")] == [
        "vLLM fills it.", "The rest.", "GPU 5.", "."]


def test_how_long_ago() -> None:
    assert [when(NOW + ahead, NOW) for ahead in (0, -4, -7, 7, -180, 500_000)] == [
        "just now", "just now", "10 s ago", "in 10 s", "3 min ago", "in 6 d"]
    assert when(None, NOW, "not yet") == "not yet"


def test_counts_and_sentences() -> None:
    assert [plural(count, "node") for count in (0, 1, 2, 1_200)] == [
        "0 nodes", "1 node", "2 nodes", "1,200 nodes"]
    assert plural(2, "entry", "entries") == "2 entries"
    assert [sentence(text) for text in ("it is so", "Is it?", "")] == ["It is so.", "Is it?", "."]
    assert capital("") == ""
