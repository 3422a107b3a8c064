"""What our own pages send to the browser: each a few components that draw many elements. React
mounts thousands of small ones slower with each: 2,000 block the page for three seconds."""

from typing import Any

from dash.development.base_component import Component

from gpudeck.components import BrowserComponent
from gpudeck.markup import markup, traits_of


class Frame(BrowserComponent):
    """An element of fixed markup, whose inside React leaves to our modules."""

    PROPS = "id tag traits inside"

    def __init__(self, root: Component) -> None:
        tag, traits, inside = traits_of(root)
        super().__init__(tag=tag, traits=traits, inside=markup(inside))


class Part(BrowserComponent):
    """An element of which a component is inside: React keeps its children."""

    PROPS = "id tag traits children"

    def __init__(self, root: Component, children: Any) -> None:
        tag, traits, _ = traits_of(root)
        super().__init__(tag=tag, traits=traits, children=children)


class Deck(BrowserComponent):
    """All that is in the window."""

    PROPS = "id children"

    def __init__(self, children: Any) -> None:
        super().__init__(children=children)


class Router(BrowserComponent):
    """Where the page stands. `pathname`: what it was made for; None: that is not known yet, and
    the browser says it."""

    PROPS = "id children pathname"

    def __init__(self, id: str, children: Any, pathname: str | None) -> None:
        super().__init__(id=id, children=children, pathname=pathname)


def framed(root: Component) -> Component:
    """Fixed markup as far as it goes; above a component it is React's."""
    if isinstance(root, BrowserComponent):
        return root
    if not any(isinstance(each, BrowserComponent) for each in root._traverse()):
        return Frame(root)
    inside = root.children  # what holds a component has children
    return Part(root, [framed(each) for each in (
        inside if isinstance(inside, list | tuple) else [inside])])
