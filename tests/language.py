"""Count of names and docstrings that a stranger cannot read: `python -m tests.language [PATH …]`.

A name is a noun and a function's a verb, so a participle or a pronoun alone is neither. A docstring
begins with a verb or a noun phrase. `tests/unit/test_language.py` holds the counts down.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("agent", "dashboard", "gpudeck", "widget")

TABLE = tomllib.loads((ROOT / "tests/language.toml").read_text())
NO_NAMES = frozenset(TABLE["names"].split())
NO_OPENINGS = frozenset(TABLE["openings"].split())


@dataclass(frozen=True)
class Offence:
    """A name or a docstring's opening, and where it stands."""

    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.kind} {self.text}"


@dataclass
class Count:
    """Names and docstrings of some files, and those of them that offend."""

    names: int = 0
    docstrings: int = 0
    bad_names: list[Offence] = field(default_factory=list)
    bad_openings: list[Offence] = field(default_factory=list)

    @property
    def names_per_1000(self) -> float:
        return 1000 * len(self.bad_names) / max(self.names, 1)

    @property
    def openings_pct(self) -> float:
        return 100 * len(self.bad_openings) / max(self.docstrings, 1)


def bound_name(node: ast.AST) -> str | None:
    """Return the name that `node` binds: of a function, a class, a parameter, an assignment."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.arg():
            return node.arg
        case ast.Name(ctx=ast.Store()):
            return node.id
        case ast.Attribute(ctx=ast.Store()):
            return node.attr
    return None


def docstring(node: ast.AST) -> str | None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return ast.get_docstring(node) if isinstance(node, documented) else None


def count_file(path: Path, count: Count) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        line = getattr(node, "lineno", 1)
        if (name := bound_name(node)) is not None:
            count.names += 1
            if name.strip("_") in NO_NAMES:
                count.bad_names.append(Offence(path, line, "name", name))
        if text := docstring(node):
            count.docstrings += 1
            first = re.match(r"[A-Za-z]*", text)
            if first and first[0].lower() in NO_OPENINGS:
                opening = text.splitlines()[0]
                count.bad_openings.append(Offence(path, line, "docstring", opening))


def source_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def count_language(paths: Iterable[Path]) -> Count:
    count = Count()
    for path in source_files(paths):
        count_file(path, count)
    return count


def main() -> None:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / room for room in PRODUCT]
    count = count_language(paths)
    for offence in sorted([*count.bad_names, *count.bad_openings], key=str):
        print(offence)
    print(f"{len(count.bad_names)} of {count.names} names, {count.names_per_1000:.1f} per 1,000; "
          f"{len(count.bad_openings)} of {count.docstrings} docstrings, {count.openings_pct:.1f} %")


if __name__ == "__main__":
    main()
