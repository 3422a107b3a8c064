"""Sentences and labels that the pages and the notebook's widget show, with file and line:
`.venv/bin/python -m tests.user_strings` prints them to be read in one go.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACES = ("assets/**/*.mjs", "widget/*.mjs", "dashboard/pages/**/*.py", "dashboard/**/views.py")
# The strings of a JavaScript source: what could hide a quote is consumed first.
TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/
  | (?<![\w)\]}"'`\s])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*
  | "(?P<double>(?:\\.|[^"\\\n])*)" | '(?P<single>(?:\\.|[^'\\\n])*)'
  | (?P<template>`) | (?P<brace>[{}])
""", re.VERBOSE | re.DOTALL)
PIECE = re.compile(r"((?:\\.|\$(?!\{)|[^`\\$])*)(\$\{|`)", re.DOTALL)
SOURCE = re.compile(r"(\./|\.\./|/|#|\.|--|urn:|\[|var\(|repeat\(|--)\S*$|[\w./-]+\.mjs$")


class UserString(NamedTuple):
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def is_shown(text: str) -> bool:
    """A sentence or a label; not a key, an address or an element's id."""
    return bool(re.search(r"[A-Za-z]", text) and not SOURCE.match(text.strip())
                and re.search(r"\s|^[A-Z][a-z]", text.strip()))


def in_javascript(source: str) -> Iterator[tuple[int, str]]:
    """Yield strings with their lines. A template has `{}` for `${…}`; strings in that follow."""
    # Where each begins, its pieces, and the braces that are open in it.
    open_templates: list[tuple[int, list[str], int]] = []
    at = 0

    def piece(begin: int, pieces: list[str], at: int) -> tuple[int, str | None]:
        part = PIECE.match(source, at)
        if part is None:
            raise ValueError(f"a template without an end at {begin}")
        pieces.append(part[1])
        if part[2] == "`":
            return part.end(), "{}".join(pieces)
        open_templates.append((begin, pieces, 0))
        return part.end(), None

    while token := TOKEN.search(source, at):
        begin, at, text = token.start(), token.end(), token["double"] or token["single"]
        if token["template"]:
            at, text = piece(begin, [], at)
        elif token["brace"] and open_templates:
            begin, pieces, depth = open_templates.pop()
            if token["brace"] == "}" and depth == 0:
                at, text = piece(begin, pieces, at)
            else:
                open_templates.append((begin, pieces, depth + (1 if token["brace"] == "{" else -1)))
        if text:
            yield source.count("\n", 0, begin) + 1, text


def in_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield strings that are no docstrings; an f-string with `{}` for what it fills in."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}"
                                       for part in node.values)
        elif (isinstance(node, ast.Constant) and isinstance(node.value, str)
              and id(node) not in skipped):
            yield node.lineno, node.value


def shown_strings(places: Iterable[str] = PLACES) -> list[UserString]:
    """Return the strings that the files of these patterns show, in the order of the files."""
    paths = sorted({path for place in places for path in ROOT.glob(place)
                    if "vendor" not in path.parts})
    rows = []
    for path in paths:
        strings = in_python if path.suffix == ".py" else in_javascript
        rows += [UserString(str(path.relative_to(ROOT)), line, re.sub(r"\s+", " ", text))
                 for line, text in sorted(strings(path.read_text())) if is_shown(text)]
    return rows


def hits(strings: Iterable[UserString], phrases: Path) -> list[str]:
    """List where a phrase occurs, and what to write instead. `text` is a regular expression that
    begins and ends at words; `but_in` are beginnings of paths where it has another meaning.
    """
    rows = [(re.compile(rf"(?<!\w)(?:{row['text']})(?!\w)"), row)
            for row in tomllib.loads(phrases.read_text())["phrase"]]
    return [f"{string} -> {row['instead']}" for string in strings for pattern, row in rows
            if pattern.search(string.text)
            and not string.path.startswith(tuple(row.get("but_in", ())))]


if __name__ == "__main__":
    print(*shown_strings(), sep="\n")
