"""Routing of addresses to pages: only the layout of the page at an address is sent, and a site's
page only to people who may see it."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from dash.development.base_component import Component
from flask import has_request_context, request

from ..access.policy import Actor
from .frame import Deck, Frame, Router, framed
from .graphs import AnsweredFigure
from .help import help_dialog
from .parts import Page
from .reading import PageAnswer
from .shell import parts_above, parts_below
from .site import SITE_MODULES, SitePages

MAIN = "main"
GRAPH = "figures/graph.mjs"  # only pages with a figure load it


class PageRouter:
    """Finds the page at an address. `asker` returns the current request's actor."""

    def __init__(self, pages: Sequence[Page], sites: SitePages, asker: Callable[[], Actor]) -> None:
        self._pages = pages
        self._sites = sites
        self._asker = asker

    def visible_pages(self, pathname: str | None) -> list[Page]:
        """Return our pages, the site's pages this person may see, and the one at `pathname`."""
        if not has_request_context():
            return [*self._pages]
        return [*self._pages, *self._sites.rows(self._asker(), pathname)]

    def layout(self) -> Any:
        """Return the layout. Dash also calls this at startup, outside any request. A request for it
        does not name the page: that comes from the Referer header or, without one, later by the
        callback."""
        referrer = request.headers.get("Referer") if has_request_context() else None
        pathname = None if referrer is None else urlsplit(referrer).path
        pages = self.visible_pages(pathname)
        router = Router(MAIN, self.content(pathname), pathname)
        return Deck([*map(Frame, parts_above(pages)), router,
                     *map(Frame, (*parts_below(), help_dialog(pages)))])

    def is_site(self, pathname: str) -> bool:
        return self._sites.is_at(pathname)

    def modules(self, pathname: str) -> tuple[str, tuple[str, ...]]:
        """Return the key of the page at an address, and the modules in `assets/` that draw it."""
        if self.is_site(pathname):
            return "site", SITE_MODULES
        page = self._at(pathname)
        has_figure = any(isinstance(part, AnsweredFigure) for part in page.frame()._traverse())
        return page.key, (page.module, *((GRAPH,) if has_figure else ()))

    def content(self, pathname: object) -> list[Component]:
        """Return the page at an address. `pathname` comes from the browser and may be anything."""
        if not isinstance(pathname, str):
            return []
        if self._sites.is_at(pathname):
            return [self._sites.content(pathname, self._asker())]
        page = self._at(pathname)
        frame = framed(page.frame())
        return [frame] if page.reading is None else [frame, PageAnswer(page.reading)]

    def is_missing(self, pathname: str) -> bool:
        return not self._sites.is_at(pathname) and self._at(pathname) is self._pages[-1]

    def _at(self, pathname: str) -> Page:
        """Return the page at an address; the last page is for all others. assets/deck.mjs does the
        same."""
        return next((page for page in self._pages if page.address == pathname or (
            page.addresses is not None and re.search(page.addresses, pathname))), self._pages[-1])
