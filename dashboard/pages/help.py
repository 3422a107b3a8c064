"""The help that `?` shows: what the page is for, and its keys."""

from collections.abc import Iterable

from dash.development.base_component import Component

from gpudeck.markup import icon_button, make

from .parts import Keys, Page


def everywhere(pages: Iterable[Page]) -> Keys:
    return (*((f"g {page.go[0]}", f"go to {page.go[1]}") for page in pages if page.go is not None),
            ("a", "running actions"),
            ("t", "dark or light"),
            ("?", "this help"))


def help_dialog(pages: Iterable[Page]) -> Component:
    return make("dialog#help-dialog.dialog.help", [
        make("div.dialog-head", [make("h2#help-title", "Help"),
                                 icon_button("help-close", "close", "Close (Esc)")]),
        *map(_page, pages),
        make("section.shortcuts", [make("h3", "On every page"), _keys(everywhere(pages))]),
        make("p.help-about.last", "Hover, focus or tap the name of a metric to see what it means."),
        make("p#help-cost.help-about", hidden=True)], aria_labelledby="help-title")


def _page(page: Page) -> Component:
    keys = [make("h3", "On this page"), _keys(page.keys)] if page.keys else []
    return make("section", [make("p.help-about", [make("strong", f"{page.name}. "), page.about]),
                            make("div.shortcuts", keys)], hidden=True, data_page=page.key)


def _keys(keys: Keys) -> Component:
    return make("dl", [make("div", [make("dt", [make("kbd", key) for key in names.split("  ")]),
                                    make("dd", what)]) for names, what in keys])
