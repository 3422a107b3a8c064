"""No text outside the pages has a phrase of tests/words_text.toml. Pages have another list."""

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
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…"
                          for each in node.values)
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
    words = "|".join(r"\s+".join(map(re.escape, each.split())) for each in phrases)
    return re.compile(rf"(?<![\w`/_.-])(?:{words})(?![\w`/_=-])", re.IGNORECASE)


def said(phrase: str, text: str) -> bool:
    return any(not phrase.startswith("Gpu") or phrase == found
               for found in pattern([phrase]).findall(text))


ANY = pattern([each["text"] for each in PHRASES])


def test_no_text_has_a_phrase_that_the_list_replaces() -> None:
    found = sorted({f"{name}: {each['text']!r}; write: {each['instead']}"
                    for name, text in texts() if ANY.search(text) for each in PHRASES
                    if said(each["text"], text) and name not in each.get("but_in", ())})
    assert found == [], "\n".join(found)


def test_a_planted_phrase_is_found_and_what_only_looks_like_one_is_not() -> None:
    code = '"""Whoever."""\n' + 'raise ValueError(f"{name} is\\n  told")\nprint("Idle Gpu found")'
    texts_of_code = list(sentences(code))
    assert any(said("is told", text) for text in texts_of_code)
    assert any(said("Gpu", text) for text in texts_of_code)
    assert not any(said("whoever", text) for text in texts_of_code), "a docstring"
    assert not said("Gpu", "a GPU, free")
    assert not said("is so", "this is some text")
    assert not said("beside", "`beside` has at most 8 GPUs, as ?beside=")
