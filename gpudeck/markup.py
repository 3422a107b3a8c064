"""Elements of a page as Dash has them, named as a style sheet names them, and as HTML."""

import html
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from dash import html as elements
from dash.development.base_component import Component

Options = Iterable[tuple[str, str]]  # value and words
_SELECTOR = re.compile(r"(\w+)(?:#([\w-]+))?((?:\.[\w-]+)*)")
_NAMES = {"className": "class", "htmlFor": "for"}
_WITHOUT_END = frozenset(("img", "br", "hr", "input"))
_LINKS = frozenset(("href", "src"))
_WILDCARDS = ("data-", "aria-")
_OF_DASH = ("_", "available_")  # what Dash says of an element, beside its traits
# Nothing else may be a link: a browser would run `javascript:`, with spaces in it as well.
_SAFE_LINK = re.compile(r"(?:/(?![/\\])|#|\?|https?://|mailto:)", re.I)
_SAFE_STYLE = re.compile(r"[\w .,%#()+-]*")


class Input(Component):
    """A plain input element, which Dash's own elements lack. It only ever becomes markup."""

    def __init__(self, inside: None = None, **traits: Any) -> None:
        self._namespace, self._type = "dash_html_components", "Input"
        self._prop_names, self._valid_wildcard_attributes = ["children", *traits], []
        self._children_props, self._base_nodes = [], ["children"]
        super().__init__(**traits)  # type: ignore[no-untyped-call]


def make(what: str, inside: Any = None, **traits: Any) -> Component:
    """Make an element, named as a style sheet names it: `make("p#words.note", "…", role="status")`.
    `hidden=True` hides it, and `aria_label` is `aria-label`."""
    tag, ident, classes = _selector(what)
    if tag == "button":
        traits.setdefault("type", "button")
    traits = {"id": ident, "className": classes} | traits
    traits["hidden"] = "hidden" if traits.get("hidden") else None
    props = {_prop(name): value for name, value in traits.items() if value is not None}
    if tag == "input":
        return Input(inside, **props)
    kind, facts, names = _kind(tag)
    if not all(name in names or name.startswith(_WILDCARDS) for name in props):
        kind(inside, **props)  # says what is wrong
    # Dash would take most of the time of a page for messages that nobody reads.
    element: Component = kind.__new__(kind)
    vars(element).update(facts, children=inside, **props)
    return element


@lru_cache(maxsize=4_096)
def _selector(what: str) -> tuple[str, str | None, str | None]:
    selector = _SELECTOR.fullmatch(what)
    assert selector is not None, what
    tag, ident, classes = selector.groups()
    return tag, ident, classes.replace(".", " ").strip() or None


@lru_cache(maxsize=1_024)
def _prop(name: str) -> str:
    return f"{name[:4]}-{name[5:]}" if name.startswith(("aria_", "data_")) else name


@lru_cache(maxsize=256)
def _kind(tag: str) -> tuple[Any, dict[str, Any], frozenset[str]]:
    """Return the class of elements, all that Dash says of one, and the names of its traits."""
    kind = getattr(elements, tag.capitalize())
    empty = kind()
    return kind, {**vars(empty)}, frozenset(empty._prop_names)


def icon_button(ident: str, icon: str, label: str, **traits: str) -> Component:
    return make(f"button#{ident}.icon-button", make(f"span.icon.icon-{icon}"), title=label,
                aria_label=label, **traits)


def region(what: str, label: str, inside: Any = None, **traits: Any) -> Component:
    """Make a region that scrolls, and so must be reachable by the keyboard."""
    return make(what, inside, tabIndex="0", role="region", aria_label=label, **traits)


def labelled(ident: str, label: str, control: Component, classes: str = ".choice",
             name: str = "label") -> Component:
    return make(f"div{classes}", [make(name, label, htmlFor=ident), control])


def choice(ident: str, label: str, options: Options, *looks: str, **traits: Any) -> Component:
    return labelled(ident, label, make(
        f"select#{ident}", [make("option", words, value=value) for value, words in options],
        **traits), *looks)


def traits_of(part: Component) -> tuple[str, dict[str, Any], Any]:
    """Return the tag, the traits and the inside of an element."""
    props = {name: value for name, value in vars(part).items()
             if not name.startswith(_OF_DASH) and name != "children"}
    inside = getattr(part, "children", None)
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
    traits = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes(props).items())
    end = "" if tag in _WITHOUT_END else f"{markup(inside)}</{tag}>"
    return f"<{tag}{traits}>{end}"


def attributes(traits: dict[str, Any]) -> dict[str, str]:
    """Return an element's attributes as HTML names and writes them. A table becomes JSON, a flag is
    there or not, and a link that could run a script is left out."""
    if not traits:
        return {}
    in_html = {_name_in_html(name): value for name, value in traits.items()}
    if scripts := [name for name in in_html if name.startswith("on")]:
        raise ValueError(f"an element has no scripts: {', '.join(scripts)}")
    return {name: _attribute(name, value) for name, value in in_html.items()
            if value is not None and (value is not False or name.startswith("aria-"))
            and (name not in _LINKS or _SAFE_LINK.match(str(value)))}


@lru_cache(maxsize=1_024)
def _name_in_html(name: str) -> str:
    return _NAMES.get(name, name).lower()


def _attribute(name: str, value: Any) -> str:
    if isinstance(value, str) and name != "style":
        return value
    if isinstance(value, bool):
        return str(value).lower() if name.startswith(("aria-", "data-")) else ""
    if name == "style":
        return "; ".join(f"{_dashed(trait)}: {_style(amount)}" for trait, amount in value.items())
    is_table = isinstance(value, dict | list)
    return json.dumps(value, separators=(",", ":")) if is_table else str(value)


def _dashed(trait: str) -> str:
    return trait if trait.islower() else re.sub(
        "[A-Z]", lambda match: f"-{match[0].lower()}", trait)


def _style(amount: Any) -> str:
    text = str(amount)
    if not _SAFE_STYLE.fullmatch(text):
        raise ValueError(f"not a value of a style: {text[:40]!r}")
    return text
