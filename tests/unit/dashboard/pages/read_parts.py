"""Looks into what a page that is read answers, as its tests need them."""

import json
from collections.abc import Iterator
from typing import Any

from dashboard.pages.parts import Page
from dashboard.pages.reading import Parts, parts_on_wire
from gpudeck.markup import attributes, traits_of


def elements(nodes: Any) -> Iterator[tuple[str, dict[str, str], list[Any]]]:
    """Yield all elements of a part as it is sent, in their order."""
    for node in nodes if isinstance(nodes, list) else ():
        if not isinstance(node, str):
            yield node[0], node[1], node[2]
            yield from elements(node[2])


def words(nodes: Any) -> str:
    """Return the text of a part as it is sent."""
    return "".join(node if isinstance(node, str) else words(node[2])
                   for node in (nodes if isinstance(nodes, list) else ()))


def wire_parts(page: Page, parts: Parts) -> dict[str, Any]:
    """Return the parts as they are sent; each has its place in the page's frame."""
    ids = {attributes(traits_of(part)[1]).get("id") for part in page.frame()._traverse()
           if hasattr(part, "to_plotly_json")}
    assert {key for key in parts if not key.startswith("@")} <= ids
    nodes: dict[str, Any] = json.loads(json.dumps(parts_on_wire(parts)))
    return nodes


def forms(nodes: Any) -> list[dict[str, Any]]:
    """Return the orders that the buttons of a part carry out."""
    return [json.loads(traits["data-form"]) for _, traits, _ in elements(nodes)
            if "data-form" in traits]
