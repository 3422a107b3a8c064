"""Components of our own pages: each page is a few components that draw many elements. React takes
longer for each of thousands of small ones: 2,000 block the page for three seconds."""

from typing import Any

from dash.development.base_component import Component

from gpudeck.components import BrowserComponent
from gpudeck.markup import markup, traits_of


class Frame(BrowserComponent):
    """An element of fixed markup; React leaves its inside to our modules."""

    PROPS = "id tag traits inside"

    def __init__(self, root: Component) -> None:
        tag, traits, inside = traits_of(root)
        super().__init__(tag=tag, traits=traits, inside=markup(inside))


class Part(BrowserComponent):
    """An element with a component inside: React manages its children."""

    PROPS = "id tag traits children"

    def __init__(self, root: Component, children: Any) -> None:
        tag, traits, _ = traits_of(root)
        super().__init__(tag=tag, traits=traits, children=children)


class Deck(BrowserComponent):
    """The whole content of the window."""

    PROPS = "id children"

    def __init__(self, children: Any) -> None:
        super().__init__(children=children)


class Router(BrowserComponent):
    """The place of the page. `pathname`: the path its children were made for; None: it is not known
    yet, and the browser sends it."""

    PROPS = "id children pathname"

    def __init__(self, id: str, children: Any, pathname: str | None) -> None:
        super().__init__(id=id, children=children, pathname=pathname)


def framed(root: Component) -> Component:
    """Turn an element into a Frame, or into a Part where a component is inside."""
    if isinstance(root, BrowserComponent):
        return root
    if not any(isinstance(part, BrowserComponent) for part in root._traverse()):
        return Frame(root)
    inside = root.children  # an element with a component inside has children
    return Part(root, [framed(child) for child in (
        inside if isinstance(inside, list | tuple) else [inside])])
