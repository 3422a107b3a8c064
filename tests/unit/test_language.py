"""Names and docstrings that a stranger can read: their counts only fall (tests/language.toml)."""

from pathlib import Path

import pytest

from tests.language import ROOT, TABLE, count_language

LIMITS = TABLE["limits"]


@pytest.mark.parametrize("part", LIMITS)
def test_names_and_docstrings_of_no_dialect(part: str) -> None:
    limit = LIMITS[part]
    count = count_language(ROOT / room for room in limit["rooms"])
    assert count.names_per_1000 <= limit["names"], [str(name) for name in count.bad_names][-40:]
    assert count.openings_pct <= limit["openings"], [str(text) for text in count.bad_openings][-40:]


def test_what_is_counted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""Rows of a table."""\n\n\ndef read_rows(said, rows):\n    """Of whom."""\n'
        "    rows.kept = [each for each in said]\n    known_rows = rows\n    return known_rows\n"
        'class Asked:\n    """Row that is read."""\n\n    _told: int = 0\n')
    count = count_language([tmp_path])
    assert sorted(offence.text for offence in count.bad_names) == ["_told", "each", "kept", "said"]
    assert count.names == 8
    assert [offence.text for offence in count.bad_openings] == ["Of whom."]
    assert count.docstrings == 3
