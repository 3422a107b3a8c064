"""Elements of a page as they travel in an answer: `[tag, {attributes}, [children]]`, and a text is
a string. assets/reading/patch.mjs builds them with calls of the DOM: all text stays text."""

from typing import Any

from dash.development.base_component import Component

from gpudeck.components import BrowserComponent
from gpudeck.markup import attributes, traits_of

Tree = list[Any]
NEVER = frozenset(("script", "style", "iframe", "base", "embed", "object", "meta", "link"))


def trees(part: Any) -> list[Tree | str]:
    """Return the nodes that a part of a page consists of: an element, a text or a number, or a list
    of them, with None for nothing."""
    if part is None or part == "":
        return []
    if isinstance(part, list | tuple):
        return [node for inner in part for node in trees(inner)]
    return [_tree(part) if isinstance(part, Component) else str(part)]


def _tree(element: Component) -> Tree:
    tag, traits, inside = traits_of(element)
    if isinstance(element, BrowserComponent) or tag in NEVER:
        raise ValueError(f"an answer has plain elements only, no {type(element).__name__}")
    return [tag, attributes(traits), trees(inside)]
