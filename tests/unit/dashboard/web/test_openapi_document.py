"""Facts of the OpenAPI document that generators of clients rely on."""

from collections.abc import Iterator
from typing import Any

from dashboard.openapi.document import document

NEEDED = {
    "block": {"metric", "start", "step", "count"},
    "moment": {"at"},
    "load": {"start", "end", "step"}, "series": {"gpu", "metric"}, "instant": {"metric"},
    "mps/past": {"node"}, "findings": {"user"},
}


def test_what_is_refused_when_it_is_missing_is_marked_as_required() -> None:
    """tests/integration/test_history.py and test_blocks.py ask the hub without them."""
    required = {path.removeprefix("/api/v1/"): {
        parameter["name"] for parameter in operation["parameters"]
        if parameter["in"] == "query" and parameter["required"]}
        for path, methods in document()["paths"].items() for operation in methods.values()}
    assert {path: names for path, names in required.items() if names} == NEEDED


def _dicts(of: Any) -> Iterator[dict[str, Any]]:
    if isinstance(of, dict):
        yield of
    for value in of.values() if isinstance(of, dict) else of if isinstance(of, list) else ():
        yield from _dicts(value)


def test_no_schema_is_false_where_a_generator_wants_an_object() -> None:
    """openapi-python-client gives up over it, and makes no client at all."""
    tuples = [schema for schema in _dicts(document()) if "prefixItems" in schema]
    assert tuples
    assert [schema for schema in tuples if "items" in schema] == []
