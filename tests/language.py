"""Count of names and docstrings that a stranger cannot read: `python -m tests.language [PATH …]`;
`--js` counts the JavaScript in these folders.

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

# What JavaScript declares: variables, functions and classes, methods, fields.
DECLARATION = re.compile(
    r"\b(?:const|let|function|class)\s+(\w+)"
    r"|^  (?:async |get |set |static )*(\w+)\([^)]*\) \{|^  (\w+)(?: = |;$)", re.M)
KEYWORDS = frozenset(("if", "for", "while", "switch", "constructor", "return", "super"))
GEOMETRY = frozenset(("left",))  # beside top, right and bottom
# The head of a module, and the first line of a JSDoc comment.
COMMENT = re.compile(r"\A// (.*)|/\*\*[ \t]*(?:\n[ \t]*\*[ \t]?)?([^\n]*)")


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


def count_module(path: Path, count: Count) -> None:
    """Count a module of JavaScript: its head, its JSDoc and what it declares."""
    text = path.read_text()

    def line(at: int) -> int:
        return text.count("\n", 0, at) + 1

    for match in DECLARATION.finditer(text):
        name = next(filter(None, match.groups()))
        if name not in KEYWORDS:
            count.names += 1
            if name in NO_NAMES - GEOMETRY:
                count.bad_names.append(Offence(path, line(match.start()), "name", name))
    for match in COMMENT.finditer(text):
        opening = next(filter(None, match.groups()), "")
        if opening and not opening.startswith("@"):
            count.docstrings += 1
            if re.match(r"[A-Za-z]*", opening)[0].lower() in NO_OPENINGS:  # type: ignore[index]
                count.bad_openings.append(Offence(path, line(match.start()), "docstring", opening))


def source_files(paths: Iterable[Path], suffix: str = ".py") -> Iterator[Path]:
    for path in paths:
        files = sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]
        yield from (file for file in files if "vendor" not in file.parts)


def count_language(paths: Iterable[Path], suffix: str = ".py") -> Count:
    count = Count()
    for path in source_files(paths, suffix):
        (count_file if path.suffix == ".py" else count_module)(path, count)
    return count


def main() -> None:
    rooms = [*PRODUCT, "assets"]
    paths = [Path(name).resolve() for name in sys.argv[1:] if name != "--js"] or [
        ROOT / room for room in rooms]
    count = count_language(paths, "js" if "--js" in sys.argv else ".py")
    for offence in sorted([*count.bad_names, *count.bad_openings], key=str):
        print(offence)
    print(f"{len(count.bad_names)} of {count.names} names, {count.names_per_1000:.1f} per 1,000; "
          f"{len(count.bad_openings)} of {count.docstrings} docstrings, {count.openings_pct:.1f} %")


if __name__ == "__main__":
    main()
