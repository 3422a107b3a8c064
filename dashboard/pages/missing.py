"""The page of every address that is no other page's."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page


def frame() -> Component:
    return make("div#missing.missing-page", [
        make("h1", "Page not found"), make("p#missing-words", "", role="status"),
        make("ul#missing-nearest.nearest")], hidden=True)


PAGE = Page("missing", "Not found", "parts/missing.mjs", frame,
            "No page at this address.")
