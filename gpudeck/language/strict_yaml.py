"""Strict YAML reader that knows the line of an error. The only file that uses the library."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str, ...]


class _StrictYamlLoader(yaml.SafeLoader):
    """Loader that accepts only data: no aliases, which can make a file of 1 kB one of 1 GB; no
    tags, which turn other values into texts; no key twice, of which YAML takes the last without an
    error."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark, tag = event.start_mark, getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not accepted",
                                       problem_mark=mark)
        if tag is not None:
            raise yaml.MarkedYAMLError(problem="tags (!name) are not accepted", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError:  # Python parses no number of more than some thousand digits
            raise yaml.MarkedYAMLError(problem="a number of too many digits",
                                       problem_mark=node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a field name is a single word",
                                           problem_mark=key.start_mark)
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is here twice",
                                           problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


# `no`, `on`, 12:30, 0x1F and 2027-01-31 are words to people, not booleans, numbers or dates.
_StrictYamlLoader.yaml_implicit_resolvers = {}
for tag, how, firsts in (
        ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
        ("int", r"[-+]?(?:0|[1-9]\d*)", [*"-+0123456789"]),
        ("float", r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?", [*"-+.0123456789"])):
    _StrictYamlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{how})$"),
                                            firsts)


class InvalidYamlError(ValueError):
    def __init__(self, line: int | None, why: str) -> None:
        super().__init__(why)
        self.line = line


def load(text: str) -> Any:
    return load_with_lines(text)[0]


def load_with_lines(text: str) -> tuple[Any, dict[Path, int]]:
    """Load a document, and the line of each field. Raises InvalidYamlError."""
    try:
        loader = _StrictYamlLoader(text)
        try:
            node = loader.get_single_node()
            return (None, {}) if node is None else (
                loader.construct_document(node), dict(_lines(node, ())))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise InvalidYamlError(None if mark is None else mark.line + 1,
                               str(error.problem)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidYamlError(line, "there is an unprintable character here") from None
    except RecursionError:
        raise InvalidYamlError(None, "it is nested too deep") from None


def _lines(node: Any, path: Path) -> Iterator[tuple[Path, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, key.value), key.start_mark.line + 1
            yield from _lines(value, (*path, key.value))


def dump(data: Any, width: int) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=width)
