"""The small pieces that pages are made of."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from dash.development.base_component import Component

from gpudeck.markup import Options, icon_button, make

KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")  # of a page

Keys = tuple[tuple[str, str], ...]  # those that are told together, and what they do


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and what `?` says of it. `key` is the id of its element; `module`, in `assets/`, has
    the class that fills it; `go` is the key after `g` that leads there, and what it leads to. One
    without an address is reached from another: what `addresses` matches is its own."""

    key: str
    name: str
    module: str
    frame: Callable[[], Component]
    about: str
    keys: Keys = ()
    address: str | None = None
    go: tuple[str, str] | None = None
    addresses: str | None = None
    under: str | None = None  # of the bar's pages, the one that it belongs to, by address
    is_live: bool = False  # it shows what comes each second

    def row(self) -> dict[str, object]:
        """What `assets/` has to know of it."""
        return {"key": self.key, "name": self.name, "module": self.module, "address": self.address,
                "go": None if self.go is None else self.go[0], "addresses": self.addresses,
                "under": self.address or self.under, "is_live": self.is_live}


def prose(text: str) -> Component:
    """A paragraph in which what stands between backticks is code."""
    parts = [make("code", part) if at % 2 else part for at, part in enumerate(text.split("`"))]
    return make("p", [part for part in parts if part] if len(parts) > 1 else text)


def problem(page: str) -> Component:
    return make(f"div#{page}-problem.problem", hidden=True, role="alert")


def switch(ident: str, label: str, name: str, options: Options) -> Component:
    """Buttons of which one is pressed, each with its `data-…` of this name."""
    buttons = [make("button", words, aria_pressed="false", **{f"data_{name}": value})
               for value, words in options]
    return make(f"div#{ident}.switch", buttons, role="group", aria_label=label)


def moments(page: str) -> Component:
    """From and to, in the browser's own time zone; the fields are made by the page's module."""
    fields = [part for end, label in (("from", "From"), ("to", "to")) for part in (
        make("label", label, htmlFor=f"{page}-{end}"), make("span", data_moment=f"{page}-{end}"))]
    return make("div.moments", [*fields, make(f"span#{page}-zone.zone", "")])


def filter_box(prefix: str, popover: Component) -> Component:
    """Dash has no plain input element; the page's module puts it into its place."""
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
    """What is known of one `thing`, beside the list of them."""
    head = make("header", [
        make("div", [make(f"h2#{prefix}-title", ""), make(f"p#{prefix}-subtitle", "")]),
        icon_button(f"{prefix}-copy", "copy", f"Copy a link to this {thing}"),
        icon_button(f"{prefix}-close", "close", "Close (Esc)")])
    return make(f"aside#{ident}.drawer", [head, *more], hidden=True, tabIndex="-1",
                aria_labelledby=f"{prefix}-title")
