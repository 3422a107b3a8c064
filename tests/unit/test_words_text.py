"""Texts outside the pages have no phrase of tests/words_text.toml. Pages have another list."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PHRASES: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "tests/words_text.toml").read_text(encoding="utf-8"))["phrase"]
RULES = ROOT / "dashboard/alerts/rules.yaml"


def sentences(source: str) -> Iterator[str]:
    """String literals of a module that have a space; docstrings are for developers."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):  # a parent comes before its parts
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…"
                          for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (
                id(node) not in skipped and " " in node.value.strip()):
            yield node.value


def texts() -> Iterator[tuple[str, str]]:
    for program in ("agent", "dashboard", "gpudeck"):
        for path in sorted((ROOT / program).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("dashboard/pages/"):
                yield from ((name, text) for text in sentences(path.read_text(encoding="utf-8")))
    for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["rules"]:
        yield RULES.relative_to(ROOT).as_posix(), f"{rule['title']}. {rule['runbook']}"
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield "CHANGELOG.md", changes.partition("## [Unreleased]")[2].partition("\n## [")[0]


def pattern(phrases: list[str]) -> re.Pattern[str]:
    """Whole words in any case, over line ends; `code`, a path, a key or a flag is no phrase."""
    words = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases)
    return re.compile(rf"(?<![\w`/_.-])(?:{words})(?![\w`/_=-])", re.IGNORECASE)


def has_phrase(phrase: str, text: str) -> bool:
    return any(not phrase.startswith("Gpu") or phrase == match
               for match in pattern([phrase]).findall(text))


ANY = pattern([row["text"] for row in PHRASES])


def test_no_text_has_a_phrase_that_the_list_replaces() -> None:
    hits = sorted({f"{name}: {row['text']!r}; write: {row['instead']}"
                   for name, text in texts() if ANY.search(text) for row in PHRASES
                   if has_phrase(row["text"], text) and name not in row.get("but_in", ())})
    assert hits == [], "\n".join(hits)


def test_a_planted_phrase_is_found_and_what_only_looks_like_one_is_not() -> None:
    code = '"""Whoever."""\n' + 'raise ValueError(f"{name} is\\n  told")\nprint("Idle Gpu found")'
    texts_of_code = list(sentences(code))
    assert any(has_phrase("is told", text) for text in texts_of_code)
    assert any(has_phrase("Gpu", text) for text in texts_of_code)
    assert not any(has_phrase("whoever", text) for text in texts_of_code), "a docstring"
    assert not has_phrase("Gpu", "a GPU, free")
    assert not has_phrase("is so", "this is some text")
    assert not has_phrase("beside", "`beside` has at most 8 GPUs, as ?beside=")
