"""Elements of a page as Dash has them, named as a style sheet names them, and as HTML."""

import html
import re
from collections.abc import Iterable
from typing import Any

from dash import html as elements
from dash.development.base_component import Component

Options = Iterable[tuple[str, str]]  # value and words
_SELECTOR = re.compile(r"(\w+)(?:#([\w-]+))?((?:\.[\w-]+)*)")
_NAMES = {"className": "class", "htmlFor": "for"}
_WITHOUT_END = frozenset(("img", "br", "hr"))


def make(what: str, inside: Any = None, **traits: Any) -> Component:
    """Make an element, named as a style sheet names it: `make("p#words.note", "…", role="status")`.
    `hidden=True` hides it, and `aria_label` is `aria-label`."""
    selector = _SELECTOR.fullmatch(what)
    assert selector is not None, what
    tag, ident, classes = selector.groups()
    if tag == "button":
        traits["type"] = "button"
    traits |= {"id": ident, "className": classes.replace(".", " ").strip() or None,
               "hidden": "hidden" if traits.get("hidden") else None}
    element: Component = getattr(elements, tag.capitalize())(inside, **{
        re.sub("^(aria|data)_", r"\1-", name): value
        for name, value in traits.items() if value is not None})
    return element


def icon_button(ident: str, icon: str, label: str, **traits: str) -> Component:
    return make(f"button#{ident}.icon-button", make(f"span.icon.icon-{icon}"), title=label,
                aria_label=label, **traits)


def region(what: str, label: str, inside: Any = None, **traits: Any) -> Component:
    """Make a region that scrolls, and so must be reachable by the keyboard."""
    return make(what, inside, tabIndex="0", role="region", aria_label=label, **traits)


def labelled(ident: str, label: str, control: Component, classes: str = ".choice",
             name: str = "label") -> Component:
    return make(f"div{classes}", [make(name, label, htmlFor=ident), control])


def choice(ident: str, label: str, options: Options, *looks: str) -> Component:
    return labelled(ident, label, make(
        f"select#{ident}", [make("option", words, value=value) for value, words in options]),
        *looks)


def traits_of(part: Component) -> tuple[str, dict[str, Any], Any]:
    """Return the tag, the traits and the inside of an element."""
    props = dict(part.to_plotly_json()["props"])
    inside = props.pop("children", None)
    return type(part).__name__.lower(), props, inside  # of `html.Div`, div


def markup(part: Any) -> str:
    """Format it as HTML, with all text escaped."""
    if part is None:
        return ""
    if isinstance(part, list | tuple):
        return "".join(map(markup, part))
    if not isinstance(part, Component):
        return html.escape(str(part))
    tag, props, inside = traits_of(part)
    traits = "".join(f' {_NAMES.get(name, name).lower()}="{html.escape(str(value))}"'
                     for name, value in props.items())
    end = "" if tag in _WITHOUT_END else f"{markup(inside)}</{tag}>"
    return f"<{tag}{traits}>{end}"
