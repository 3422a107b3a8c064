"""A site's own pages, from the hub's folder and from installed packages, kept away from the hub's
access control. They run in the hub's process all the same, as docs/extend.md says."""

import importlib.util
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dash
from dash import _callback, html
from dash._hooks import HooksManager
from dash.development.base_component import Component

from gpudeck.errors import CommandError, ExitCode
from gpudeck.markup import make
from gpudeck.pages import ENTRY_POINTS, SitePage

from ..access.policy import PEOPLE, Actor, Permission, Role, install, may
from ..runtime.data_folder import PAGES
from .frame import Frame
from .parts import KEY, Page
from .site_hub import SiteThreads, ViewersHub

log = logging.getLogger("gpudeck.pages")

PREFIX = "/site/"
MOST_COMPONENTS = 500
SITE_MODULES = ("components/site_page.mjs", *(f"components/{name}.mjs" for name in (
    "alert_lane", "attention_strip", "live_heatmap", "live_table", "live_timeline", "stat",
    "time_bar")))
Load = Callable[[], Any]


class SitePages:
    """Serves the site's pages: their access, content and callbacks."""

    def __init__(self, pages: list[SitePage], threads: SiteThreads, hub: ViewersHub) -> None:
        self._pages = {f"{PREFIX}{page.key}": page for page in pages}
        self._threads = threads
        self._hub = hub
        install(Permission(f"page {at}", PEOPLE, Role(page.role))
                for at, page in self._pages.items())

    def is_at(self, pathname: str) -> bool:
        return pathname in self._pages

    def rows(self, actor: Actor, pathname: str | None) -> list[Page]:
        """Return the pages this person may see, and the page at `pathname`: only its key if they
        may not see it."""
        visible = {at for at in self._pages if may(actor, f"page {at}", None, time.time()) is None}
        return [_row(page) if at in visible else replace(_row(page), name=page.key, about="")
                for at, page in self._pages.items() if at in visible or at == pathname]

    def content(self, pathname: str, actor: Actor) -> Component:
        page = self._pages[pathname]
        denial = may(actor, f"page {pathname}", None, time.time())
        if denial is not None:
            return _message(page, f"{denial.sentence}.")
        try:
            inside = html.Div(self._threads.run(page.make, self._hub.frames()),
                              id=_row(page).key, className="site-page")
        except Exception as error:
            log.exception("the page %s cannot be drawn", page.key)
            return _message(page, f"This page failed: {type(error).__name__}. See the hub's log "
                            "for details.")
        count = sum(1 for _ in inside._traverse())
        if count > MOST_COMPONENTS:
            log.warning("the page %s has %d Dash components: over %d block a browser for a second",
                        page.key, count, MOST_COMPONENTS)
        return inside

    def register(self, app: dash.Dash) -> None:
        """Register the callbacks, each with a row in the access table: the role of its page."""
        for page in self._pages.values():
            for callback in page.callbacks:
                existing = {*app.callback_map}
                app.callback(*callback.arguments, **callback.options)(
                    self._answering(callback.answer))
                install(Permission(f"callback {key}", PEOPLE, Role(page.role))
                        for key in app.callback_map.keys() - existing)

    def _answering(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def answers(*values: Any) -> Any:
            return self._threads.run(answer, self._hub.frames(), *values)
        return answers


def _row(page: SitePage) -> Page:
    return Page(f"site-{page.key}", page.name, SITE_MODULES[0], lambda: make("div"),
                page.about, (), f"{PREFIX}{page.key}")


def _message(page: SitePage, sentence: str) -> Component:
    return Frame(make(f"div#{_row(page).key}.site-page", make("p.site-said", sentence)))


# -- loading


def load_site_pages(folder: Path) -> list[SitePage]:
    """Load the site's pages; one that cannot be loaded becomes a page that tells admins why."""
    refuse_hooks()
    pages: list[SitePage] = []
    for name, load in _loaders(folder):
        pages += _load_pages(name, load, pages)
    return pages


def refuse_hooks() -> None:
    """Raise CommandError if `dash_hooks` are installed: they may change routes, layout, scripts and
    index of every Dash app."""
    names = sorted(entry.name for entry in entry_points(group="dash_hooks"))
    hooks = HooksManager.hooks
    if names or any((*hooks._ns.values(), hooks._finals, hooks._js_dist, hooks._css_dist,
                     hooks._clientside_callbacks)):
        raise CommandError(
            "a package has dash_hooks, which change every page past the hub's access control: "
            f"{', '.join(names) or 'registered by a page of the site'}; remove it from the hub's "
            "environment", ExitCode.CANNOT_START)


def _loaders(folder: Path) -> Iterator[tuple[str, Load]]:
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        yield entry.name, entry.load
    for path in sorted((folder / PAGES).glob("*.py")):
        yield path.stem, partial(_module, path)


def _module(path: Path) -> Any:
    for location in (path, path.parent):
        info = os.stat(location)
        if info.st_uid not in (0, os.geteuid()) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"{location} can be written by others than the hub's user and root")
    spec = importlib.util.spec_from_file_location(f"gpudeck_site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_pages(name: str, load: Load, other_pages: list[SitePage]) -> list[SitePage]:
    try:
        definition = load()
        pages = [definition] if isinstance(definition, SitePage) else [
            member for member in vars(definition).values() if isinstance(member, SitePage)]
        _check(pages, other_pages)
    except (Exception, SystemExit) as error:
        sentence = f"The page {name} is left out: {type(error).__name__}: {error}"
        log.error("%s", sentence)
        is_free = KEY.fullmatch(name) and name not in {page.key for page in other_pages}
        return [_error_page(name, sentence)] if is_free else []
    finally:
        # Callbacks declared without a page would have neither its role nor its access check.
        _callback.GLOBAL_CALLBACK_MAP.clear()
        _callback.GLOBAL_CALLBACK_LIST.clear()
        _callback.GLOBAL_INLINE_SCRIPTS.clear()
        refuse_hooks()
    return pages


def _check(pages: list[SitePage], other_pages: list[SitePage]) -> None:
    if _callback.GLOBAL_CALLBACK_LIST or _callback.GLOBAL_INLINE_SCRIPTS:
        raise ValueError("declare callbacks with page.callback: dash.callback and "
                         "clientside_callback pass its role by")
    if not pages:
        raise ValueError("it does not define a SitePage")
    outputs = {"main.children", *(
        output for page in other_pages for output in outputs_of(page))}
    keys = {page.key for page in other_pages}
    for page in pages:
        if page.key in keys:
            raise ValueError(f"there is one with this key, {page.key}")
        keys.add(page.key)
        if not KEY.fullmatch(page.key):
            raise ValueError(f"the key {page.key!r} has characters other than a-z 0-9 -")
        if page.role not in {*Role}:
            raise ValueError(f"{page.role!r} is not a role: {', '.join(Role)}")
        if page.make is None:
            raise ValueError(f"the page {page.key} has no layout")
        for callback in page.callbacks:
            if unknown := callback.options.keys() - {"prevent_initial_call"}:
                raise ValueError(f"a callback here does not take {', '.join(sorted(unknown))}")
        for output in outputs_of(page):
            if output in outputs:
                raise ValueError(f"{output} has a callback already; ids are those of all pages")
            outputs.add(output)


def outputs_of(page: SitePage) -> list[str]:
    """Return a page's callback outputs by Dash's names; each may have only one callback in all."""
    names = []
    for callback in page.callbacks:
        parts = [part for argument in callback.arguments
                 for part in (argument if isinstance(argument, list | tuple) else [argument])]
        outputs = [part for part in parts if isinstance(part, dash.Output)]
        if not outputs:
            raise ValueError("a callback here needs an output")
        names += [f"{output.component_id_str()}.{output.component_property}" for output in outputs]
    return names


def _error_page(name: str, sentence: str) -> SitePage:
    return SitePage(name, name, Role.ADMIN, sentence,
                    lambda _: html.P(sentence, className="site-said"))
