"""Small parts of pages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import Options, icon_button, make

from .reading import Reading

READ_PAGE = "reading/read_page.mjs"
KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")  # a page's key

Keys = tuple[tuple[str, str], ...]  # keys that are listed together, and what they do


@dataclass(frozen=True, slots=True)
class Page:
    """A page and its help. `key`: the id of its element; `module`: the file in `assets/` with the
    class that fills it; `go`: the key after `g` that leads there, and the page's name in the help.
    A page without an `address` is reached from another one, at paths that `addresses` matches.
    A page with a `reading` is read: its module is READ_PAGE, or a class that extends it; of a page
    that is live, the hub writes panels so."""

    key: str
    name: str
    module: str
    frame: Callable[[], Component]
    about: str
    keys: Keys = ()
    address: str | None = None
    go: tuple[str, str] | None = None
    addresses: str | None = None
    under: str | None = None  # address of the page in the bar that it belongs to
    is_live: bool = False  # it shows the numbers that arrive each second
    reading: Reading | None = None

    def row(self) -> dict[str, object]:
        """Return the facts about the page that `assets/` needs."""
        return {"key": self.key, "name": self.name, "module": self.module, "address": self.address,
                "go": None if self.go is None else self.go[0], "addresses": self.addresses,
                "under": self.address or self.under, "is_live": self.is_live}


def prose(text: str) -> Component:
    """Return a paragraph; text between backticks becomes code."""
    parts = [make("code", part) if at % 2 else part for at, part in enumerate(text.split("`"))]
    return make("p", [part for part in parts if part] if len(parts) > 1 else text)


def problem(page: str) -> Component:
    return make(f"div#{page}-problem.problem", hidden=True, role="alert")


def switch(ident: str, label: str, name: str, options: Options) -> Component:
    """Return a row of buttons, each with its value in `data-NAME`, for the view's field `name`."""
    buttons = [make("button", words, aria_pressed="false", data_view=name, data_value=value,
                    **{f"data_{name}": value}) for value, words in options]
    return make(f"div#{ident}.switch", buttons, role="group", aria_label=label)


def moments(page: str) -> Component:
    """Return places for From and to, in the browser's time zone; the page's module makes the
    fields."""
    fields = [part for end, label in (("from", "From"), ("to", "to")) for part in (
        make("label", label, htmlFor=f"{page}-{end}"), make("span", data_moment=f"{page}-{end}"))]
    return make("div.moments", [*fields, make(f"span#{page}-zone.zone", "")])


def filter_box(prefix: str, popover: Component) -> Component:
    """Return the filter's label, help and place for its input, which the page's module inserts:
    Dash has no plain input element."""
    return make("div.filter", [
        make("label", "Filter", htmlFor=f"{prefix}filter"),
        make(f"span#{prefix}filter-place.filter-place"),
        icon_button(f"{prefix}filter-help", "help", "How to write a filter"),
        make(f"output#{prefix or 'filter-'}words.filter-words", ""),
        popover])


def filter_help(ident: str, examples: Options, *texts: str) -> Component:
    rows = [make("div", [make("dt", make("button.example", make("code", text), data_example=text)),
                         make("dd", what)]) for text, what in examples]
    return make(f"div#{ident}.popover", [make("dl", rows), *map(prose, texts)], hidden=True,
                role="dialog", aria_label="How to write a filter")


def drawer(prefix: str, thing: str, *more: Component, ident: str) -> Component:
    """Return a panel with the details of one `thing`, shown next to the list."""
    head = make("header", [
        make("div", [make(f"h2#{prefix}-title", ""), make(f"p#{prefix}-subtitle", "")]),
        icon_button(f"{prefix}-copy", "copy", f"Copy a link to this {thing}"),
        icon_button(f"{prefix}-close", "close", "Close (Esc)")])
    return make(f"aside#{ident}.drawer", [head, *more], hidden=True, tabIndex="-1",
                aria_labelledby=f"{prefix}-title")


def copyable(text: str, what: str) -> Component:
    """Return a line that can be copied to be used elsewhere."""
    return make("div.command", [make("code", text, tabIndex="0"), make(
        "button.button", "Copy", aria_label=f"Copy {what}", data_copy=text)])


def literal(value: Any) -> Any:
    """Return a value as it stands in the body of a `data_form`, where a text such as `$NAME` would
    be the value of a field."""
    if isinstance(value, str):
        return f"${value}" if value.startswith("$") else value
    if isinstance(value, Mapping):
        return {name: literal(part) for name, part in value.items()}
    return [literal(part) for part in value] if isinstance(value, list | tuple) else value
