"""Rules of composition, of the agent and of the hub, checked by reading `agent/node.py`,
`dashboard/app.py` and the `wiring.py` of each capability."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from dashboard.capabilities import CAPABILITIES
from gpudeck.contract import wire
from tests.test_layout import ROOT, classes, imported, name_of, tree_of

NODE, HUB = ROOT / "agent/node.py", ROOT / "dashboard/app.py"
NODE_WIRINGS = sorted((ROOT / "agent").rglob("wiring.py"))
HUB_WIRINGS = sorted((ROOT / "dashboard").rglob("wiring.py"))
LONGEST = {NODE: 200, HUB: 150}
# The hub's parts are looked up where it is composed and where it is started, nowhere else.
COMPOSED_IN = ("app", "serve", "demo")
TO_NODES = {message.__name__ for message in get_args(wire.FromHub)}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def own_attribute(node: ast.AST) -> str | None:
    """Return the name of X in `self.X`."""
    is_own = (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
              and node.value.id == "self")
    return node.attr if is_own and isinstance(node, ast.Attribute) else None


def empty_attributes(path: Path) -> list[str]:
    """Attributes that are None when an object has been built: somebody must set them later."""
    return [f"{name_of(path)}:{node.lineno} {own_attribute(target)} is None at first"
            for owner in classes(path) for node in ast.walk(owner)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(node.value, ast.Constant) and node.value.value is None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if own_attribute(target)]


def late_attributes(path: Path) -> list[str]:
    """Attributes that a lambda or an inner function reads, and that are set further below."""
    return [f"{name_of(path)}:{read.lineno} reads self.{name}, set at line {first[name]}"
            for owner in classes(path)
            for first in [first_lines(owner, own_attribute)]
            for inner in inner_functions(owner) for read in ast.walk(inner)
            if isinstance(read, ast.Attribute) and isinstance(read.ctx, ast.Load)
            and (name := own_attribute(read)) in first and first[name] > read.lineno]


def late_names(path: Path) -> list[str]:
    """Variables that a lambda or an inner function reads, and that are set further below."""
    wrong = []
    for outer in ast.walk(tree_of(path)):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            first = first_lines(outer, lambda node: node.id if isinstance(node, ast.Name) else None)
            wrong += [f"{name_of(path)}:{read.lineno} reads {read.id}, set at line {first[read.id]}"
                      for inner in inner_functions(outer) for read in ast.walk(inner)
                      if isinstance(read, ast.Name) and isinstance(read.ctx, ast.Load)
                      and first.get(read.id, 0) > read.lineno]
    return wrong


def first_lines(owner: ast.AST, name: Callable[[ast.AST], str | None]) -> dict[str, int]:
    """Return the line at which each name is set first."""
    lines: dict[str, int] = {}
    for node in ast.walk(owner):
        if (isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
                and (word := name(node)) is not None):
            lines[word] = min(node.lineno, lines.get(word, node.lineno))
    return lines


def inner_functions(owner: ast.AST) -> Iterator[Function]:
    """Yield functions that run later than the code around them."""
    outer = [node for node in ast.walk(owner)
             if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in outer:
        yield from (node for node in ast.walk(function)
                    if node is not function and isinstance(node, Function))


def handled_types(path: Path) -> set[str]:
    """Types of messages that are a key of a table of handlers."""
    keys = [key for node in ast.walk(tree_of(path)) if isinstance(node, ast.Dict)
            for key in node.keys]
    names = {key.attr if isinstance(key, ast.Attribute) else key.id for key in keys
             if isinstance(key, ast.Attribute | ast.Name)}
    return names & TO_NODES


@pytest.mark.parametrize("path", LONGEST, ids=name_of)
def test_a_program_is_a_list_and_a_loop(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST[path]


@pytest.mark.parametrize("check", [empty_attributes, late_attributes, late_names])
def test_nothing_is_set_after_it_is_used(check: Callable[[Path], list[str]]) -> None:
    paths = (NODE, HUB, *NODE_WIRINGS, *HUB_WIRINGS)
    assert [wrong for path in paths for wrong in check(path)] == []


def test_each_message_to_a_node_has_one_handler() -> None:
    count = Counter(name for path in NODE_WIRINGS for name in handled_types(path))
    assert count == Counter(TO_NODES)


def test_each_capability_of_the_node_is_built_by_its_wiring() -> None:
    packages = {path.parent.name for path in NODE_WIRINGS}
    composed = {node.module for node in ast.walk(tree_of(NODE)) if isinstance(node, ast.ImportFrom)
                and any(alias.name == "wiring" for alias in node.names)}
    assert composed == packages
    assert all("build" in {node.name for node in tree_of(path).body
                           if isinstance(node, ast.FunctionDef)} for path in NODE_WIRINGS)


def test_each_capability_of_the_hub_is_in_the_list() -> None:
    assert sorted(path.parent.name for path in HUB_WIRINGS) == sorted(CAPABILITIES)
    migrated = sorted(path.parent.name for path in (ROOT / "dashboard").rglob("store.py")
                      if "MIGRATIONS" in path.read_text())
    assert migrated == sorted(name for name, store in CAPABILITIES.items() if store)


def test_parts_of_the_hub_are_looked_up_where_it_is_composed() -> None:
    users = {name_of(path) for path in (ROOT / "dashboard").rglob("*.py")
             if path.name != "wiring.py" and path.relative_to(ROOT).parts[1].removesuffix(".py")
             not in COMPOSED_IN
             if any("composition" in target for _, target in imported(path))}
    assert users == set()


@pytest.mark.parametrize(("source", "check"), [
    ("class Node:\n    def __init__(self):\n        self.pool: Pool | None = None",
     empty_attributes),
    ("class Node:\n    def __init__(self):\n        self.context = open(lambda: self.driver)\n"
     "        self.driver = ''", late_attributes),
    ("class Node:\n    def __init__(self):\n        self.build()\n"
     "    def build(self):\n        self.link = Link(lambda: self.acts.key)\n"
     "        self.acts = Acts()", late_attributes),
    ("def build():\n    link = Link(lambda: acts.key)\n    acts = Acts()", late_names),
])
def test_each_rule_of_wiring_can_fail(source: str, check: Callable[[Path], list[str]],
                                      monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.test_layout.ROOT", tmp_path)
    path = tmp_path / "wiring.py"
    path.write_text(source)
    assert len(check(path)) == 1
