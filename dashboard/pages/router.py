"""Which page an address is: only that one's layout is sent, and only to whom it is for."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from dash.development.base_component import Component
from flask import has_request_context, request

from ..access.policy import Actor
from .frame import Deck, Frame, Router, framed
from .help import help_dialog
from .parts import Page
from .shell import after, before
from .site import SITE_MODULES, SitePages

MAIN = "main"


class PageRouter:
    """`asker`: who stands behind the request at hand."""

    def __init__(self, pages: Sequence[Page], sites: SitePages, asker: Callable[[], Actor]) -> None:
        self._pages = pages
        self._sites = sites
        self._asker = asker

    def seen(self, pathname: str | None) -> list[Page]:
        """Our pages, and those of the site that are for who asks; and where one is already."""
        if not has_request_context():
            return [*self._pages]
        return [*self._pages, *self._sites.rows(self._asker(), pathname)]

    def layout(self) -> Any:
        """Dash asks for it at the start, too, when nobody looks. The address is not told with the
        question: a browser names the page that asks, and one that does not is answered by the
        callback."""
        referrer = request.headers.get("Referer") if has_request_context() else None
        pathname = None if referrer is None else urlsplit(referrer).path
        seen = self.seen(pathname)
        return Deck([*map(Frame, before(seen)), Router(MAIN, self.content(pathname), pathname),
                     *map(Frame, (*after(), help_dialog(seen)))])

    def is_site(self, pathname: str) -> bool:
        return self._sites.is_at(pathname)

    def modules(self, pathname: str) -> tuple[str, tuple[str, ...]]:
        """What the page at an address is called, and what of `assets/` draws it."""
        if self.is_site(pathname):
            return "site", SITE_MODULES
        page = self._at(pathname)
        return page.key, (page.module,)

    def content(self, pathname: object) -> list[Component]:
        """What a browser says may be anything."""
        if not isinstance(pathname, str):
            return []
        if self._sites.is_at(pathname):
            return [self._sites.content(pathname, self._asker())]
        return [framed(self._at(pathname).frame())]

    def is_missing(self, pathname: str) -> bool:
        return not self._sites.is_at(pathname) and self._at(pathname) is self._pages[-1]

    def _at(self, pathname: str) -> Page:
        """assets/deck.mjs finds it alike. The last is of addresses that are nothing's."""
        return next((page for page in self._pages if page.address == pathname or (
            page.addresses is not None and re.search(page.addresses, pathname))), self._pages[-1])
