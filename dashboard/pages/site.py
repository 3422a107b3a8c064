"""Pages of a site's own: found in the hub's folder and in installed packages, kept apart from what
guards the hub. They are code of the hub's process all the same: docs/extend.md says so."""

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
    """What is asked of them, who may, and what they answer."""

    def __init__(self, pages: list[SitePage], threads: SiteThreads, hub: ViewersHub) -> None:
        self._pages = {f"{PREFIX}{page.key}": page for page in pages}
        self._threads = threads
        self._hub = hub
        install(Permission(f"page {at}", PEOPLE, Role(page.role))
                for at, page in self._pages.items())

    def is_at(self, pathname: str) -> bool:
        return pathname in self._pages

    def rows(self, actor: Actor, pathname: str | None) -> list[Page]:
        """Those that are for this person. Of the one at this address no more than its key, where
        it is not."""
        allowed = {at for at in self._pages if may(actor, f"page {at}", None, time.time()) is None}
        return [_row(page) if at in allowed else replace(_row(page), name=page.key, about="")
                for at, page in self._pages.items() if at in allowed or at == pathname]

    def content(self, pathname: str, actor: Actor) -> Component:
        page = self._pages[pathname]
        denial = may(actor, f"page {pathname}", None, time.time())
        if denial is not None:
            return _said(page, f"{denial.sentence}.")
        try:
            inside = html.Div(self._threads.run(page.make, self._hub.frames()),
                              id=_row(page).key, className="site-page")
        except Exception as error:
            log.exception("the page %s cannot be drawn", page.key)
            return _said(page, f"This page failed: {type(error).__name__}. See the hub's log for "
                         "details.")
        count = sum(1 for _ in inside._traverse())
        if count > MOST_COMPONENTS:
            log.warning("the page %s has %d Dash components: over %d block a browser for a second",
                        page.key, count, MOST_COMPONENTS)
        return inside

    def register(self, app: dash.Dash) -> None:
        """The callbacks, each with a row in the access table: the role of its page."""
        for page in self._pages.values():
            for each in page.callbacks:
                known = {*app.callback_map}
                app.callback(*each.arguments, **each.options)(self._answering(each.answer))
                install(Permission(f"callback {key}", PEOPLE, Role(page.role))
                        for key in app.callback_map.keys() - known)

    def _answering(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def answers(*values: Any) -> Any:
            return self._threads.run(answer, self._hub.frames(), *values)
        return answers


def _row(page: SitePage) -> Page:
    return Page(f"site-{page.key}", page.name, SITE_MODULES[0], lambda: make("div"),
                page.about, (), f"{PREFIX}{page.key}")


def _said(page: SitePage, sentence: str) -> Component:
    return Frame(make(f"div#{_row(page).key}.site-page", make("p.site-said", sentence)))


# -- loading


def load_site_pages(folder: Path) -> list[SitePage]:
    """What cannot be loaded is a page that tells admins why."""
    refuse_hooks()
    found: list[SitePage] = []
    for name, load in _loads(folder):
        found += _loaded(name, load, found)
    return found


def refuse_hooks() -> None:
    """`dash_hooks` may change routes, layout, scripts and index of every Dash app: not of this."""
    named = sorted(entry.name for entry in entry_points(group="dash_hooks"))
    hooks = HooksManager.hooks
    if named or any((*hooks._ns.values(), hooks._finals, hooks._js_dist, hooks._css_dist,
                     hooks._clientside_callbacks)):
        raise CommandError(
            "a package has dash_hooks, which change every page past the hub's access control: "
            f"{', '.join(named) or 'registered by a page of the site'}; remove it from the hub's "
            "environment", ExitCode.CANNOT_START)


def _loads(folder: Path) -> Iterator[tuple[str, Load]]:
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        yield entry.name, entry.load
    for path in sorted((folder / PAGES).glob("*.py")):
        yield path.stem, partial(_module, path)


def _module(path: Path) -> Any:
    for each in (path, path.parent):
        what = os.stat(each)
        if what.st_uid not in (0, os.geteuid()) or what.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{each} can be written by others than the hub's user and root")
    spec = importlib.util.spec_from_file_location(f"gpudeck_site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _loaded(name: str, load: Load, others: list[SitePage]) -> list[SitePage]:
    try:
        found = load()
        pages = [found] if isinstance(found, SitePage) else [
            each for each in vars(found).values() if isinstance(each, SitePage)]
        _check(pages, others)
    except (Exception, SystemExit) as error:
        sentence = f"The page {name} is left out: {type(error).__name__}: {error}"
        log.error("%s", sentence)
        is_free = KEY.fullmatch(name) and name not in {page.key for page in others}
        return [_failed(name, sentence)] if is_free else []
    finally:
        # What was declared past a page would have neither its role nor its gate.
        _callback.GLOBAL_CALLBACK_MAP.clear()
        _callback.GLOBAL_CALLBACK_LIST.clear()
        _callback.GLOBAL_INLINE_SCRIPTS.clear()
        refuse_hooks()
    return pages


def _check(pages: list[SitePage], others: list[SitePage]) -> None:
    if _callback.GLOBAL_CALLBACK_LIST or _callback.GLOBAL_INLINE_SCRIPTS:
        raise ValueError("declare callbacks with page.callback: dash.callback and "
                         "clientside_callback pass its role by")
    if not pages:
        raise ValueError("it does not define a SitePage")
    taken = {"main.children", *(
        each for page in others for each in outputs_of(page))}
    keys = {page.key for page in others}
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
        for each in page.callbacks:
            if unknown := each.options.keys() - {"prevent_initial_call"}:
                raise ValueError(f"a callback here does not take {', '.join(sorted(unknown))}")
        for output in outputs_of(page):
            if output in taken:
                raise ValueError(f"{output} has a callback already; ids are those of all pages")
            taken.add(output)


def outputs_of(page: SitePage) -> list[str]:
    """As Dash names them: each has one callback, on whatever page."""
    found = []
    for callback in page.callbacks:
        parts = [part for each in callback.arguments
                 for part in (each if isinstance(each, list | tuple) else [each])]
        outputs = [part for part in parts if isinstance(part, dash.Output)]
        if not outputs:
            raise ValueError("a callback here needs an output")
        found += [f"{each.component_id_str()}.{each.component_property}" for each in outputs]
    return found


def _failed(name: str, sentence: str) -> SitePage:
    return SitePage(name, name, Role.ADMIN, sentence,
                    lambda _: html.P(sentence, className="site-said"))
