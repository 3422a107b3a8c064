"""Names and docstrings that a stranger can read: their counts only fall (tests/language.toml)."""

import re
from pathlib import Path

import pytest

from tests.language import ROOT, TABLE, count_language, source_files

LIMITS = TABLE["limits"]


@pytest.mark.parametrize("part", LIMITS)
def test_names_and_docstrings_of_no_dialect(part: str) -> None:
    limit = LIMITS[part]
    count = count_language((ROOT / room for room in limit["rooms"]), limit.get("suffix", ".py"))
    assert count.names > 1_000
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


def test_what_is_counted_of_javascript(tmp_path: Path) -> None:
    (tmp_path / "one.mjs").write_text(
        "// Words.\n\nconst kept = 1;\n/** Of whom. */\nexport class Rows {\n  told = 1;\n"
        "  rows;\n\n  /**\n   * Whether it is read.\n   * @type {() => void}\n   */\n"
        "  draw() {\n    const { left } = this;\n    let said;\n    if (said) draw();\n  }\n}\n"
        "/** @type {number} */\nlet left = 0;\n")
    count = count_language([tmp_path], "js")
    assert sorted(offence.text for offence in count.bad_names) == ["kept", "said", "told"]
    assert count.names == 7
    assert [offence.text for offence in count.bad_openings] == [
        "Of whom. */", "Whether it is read."]
    assert count.docstrings == 3


def test_loggers_are_called_as_their_packages() -> None:
    """As docs/internals/debugging.md promises."""
    wrong = []
    for path in source_files([ROOT / "agent", ROOT / "dashboard"]):
        logger = re.search(r'^log = logging.getLogger\("(.*)"\)$', path.read_text(), re.M)
        program, part, *_ = path.relative_to(ROOT).with_suffix("").parts
        name = {"agent": "gpudeck.agent.", "dashboard": "gpudeck."}[program] + (
            "hub" if part in ("app", "composition", "serve") else part)
        if logger and logger[1] != name:
            wrong.append(f"{path}: {logger[1]}, not {name}")
    assert wrong == []


def test_the_glossary_names_files_that_are_there() -> None:
    page = (ROOT / "docs/internals/glossary.md").read_text()
    files = re.findall(r"`((?:agent|dashboard|gpudeck)/[^`]*)`", page)
    assert len(files) > 30
    assert [name for name in files if not (ROOT / name).exists()] == []
