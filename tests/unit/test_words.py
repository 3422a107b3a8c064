"""The pages and the widget say things in the field's own words (tests/words.toml)."""

from pathlib import Path

import pytest

from tests import user_strings
from tests.user_strings import UserString

PHRASES = user_strings.ROOT / "tests/words.toml"


def test_no_page_says_a_phrase_of_the_list() -> None:
    strings = user_strings.shown_strings()
    assert len(strings) > 2_000
    assert user_strings.hits(strings, PHRASES) == []


@pytest.mark.parametrize(("suffix", "source"), [
    (".mjs", 'const why = /"/.test(name) ? `${count} of ${count > 0 ? "all Gpus" : `x`}` : "";'),
    (".py", '"""Two Gpus in a docstring."""\nwords = f"{count} of all Gpus"\n'),
])
def test_a_planted_phrase_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str,
                                   source: str) -> None:
    (tmp_path / f"planted{suffix}").write_text(source)
    monkeypatch.setattr(user_strings, "ROOT", tmp_path)
    hits = user_strings.hits(user_strings.shown_strings((f"*{suffix}",)), PHRASES)
    assert [hit.split(":")[0] for hit in hits] == [f"planted{suffix}"]
    assert "Gpus" in hits[0]


def test_where_a_phrase_has_another_meaning_it_stays(tmp_path: Path) -> None:
    phrases = tmp_path / "words.toml"
    phrases.write_text('[[phrase]]\ntext = "held"\ninstead = "leased"\n'
                       'but_in = ["assets/fleet/"]\n')
    strings = [UserString("assets/fleet/a.mjs", 1, "8 held"),
               UserString("assets/pool/a.mjs", 2, "8 held"),
               UserString("assets/pool/a.mjs", 3, "withheld")]
    assert user_strings.hits(strings, phrases) == ["assets/pool/a.mjs:2: 8 held -> leased"]
