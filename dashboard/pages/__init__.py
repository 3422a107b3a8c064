"""The pages: Dash draws the static parts, `assets/deck.mjs` the live ones."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dash
from dash import Input, Output
from flask import Flask, request

from gpudeck.pages import SitePage

from ..access.requests import caller
from . import (
    advice,
    alerts,
    audit,
    charts,
    estimate,
    fleet,
    forecasts,
    history,
    job,
    kubernetes,
    missing,
    my_work,
    pool,
    qos,
    quotas,
    reports,
    slurm,
    tasks,
)
from .bundle import Bundles
from .graphs import FigureCallbacks
from .reading import PageCallbacks
from .router import MAIN, PageRouter
from .settings import page as settings
from .shell import PAGE_ROWS, WAITING, index, page_rows, table_tag
from .site import SitePages
from .site_hub import SiteThreads, ViewersHub, Wsgi

# In the order of the bar. assets/deck.mjs and the keys after `g` use it too: it is sent with the
# index. The last is for addresses that belong to no page.
PAGES = (fleet.PAGE, charts.PAGE, my_work.PAGE, tasks.PAGE, job.PAGE, slurm.PAGE,
         kubernetes.PAGE, pool.PAGE, alerts.PAGE, quotas.PAGE, history.PAGE, reports.PAGE,
         forecasts.PAGE, advice.PAGE, qos.PAGE, estimate.PAGE, audit.PAGE, settings.PAGE,
         missing.PAGE)

# Next to the program, in the checkout and in the wheel alike.
ASSETS = Path(__file__).resolve().parent.parent.parent / "assets"

# Dash links every script and style sheet it finds. The pages' own come as one file of each, and
# theme.js must run in the head, before the first paint: the index links it there.
_NOT_LINKED = r"^(?!dash_components\.js$)"
# Scripts of components that our own pages do not use: those are frames.
_FOR_SITES = re.compile(
    r'<script src="[^"]*/(?:polyfill@|dcc/|html/|dash_table/|plotly/)[^<]*</script>\n?')
# A page that has a figure loads these when it shows one.
_OF_GRAPHS = re.compile(r'<script src="([^"]*/(?:polyfill@|dcc/)[^"]*)"')


class _DashApp(dash.Dash):
    router: PageRouter
    bundles: Bundles

    def index(self, *names: Any, **arguments: Any) -> Any:
        html = super().index(*names, **arguments)  # type: ignore[no-untyped-call]
        return (html, 404) if self.router.is_missing(request.path) else html

    def interpolate_index(self, **parts: Any) -> str:  # type: ignore[override]
        if not self.router.is_site(request.path):
            parts["css"] += table_tag("graph-scripts", _OF_GRAPHS.findall(parts["scripts"]))
            parts["scripts"] = _FOR_SITES.sub("", parts["scripts"])
        script = self.bundles.script(*self.router.modules(request.path))
        parts["css"] += (f'<link rel="stylesheet" href="{self.bundles.style}">'
                         f'<link rel="modulepreload" href="{script}">')
        parts["scripts"] += f'<script type="module" id="modules" src="{script}"></script>'
        page: str = super().interpolate_index(**parts | {"app_entry": WAITING})  # type: ignore[no-untyped-call]
        return page.replace(PAGE_ROWS, page_rows(self.router.visible_pages(request.path)), 1)


def build_pages(server: Flask, csrf_cookie: str, site_pages: list[SitePage],
                hub: Callable[[], Wsgi]) -> dash.Dash:
    """Build the Dash app on this server. Call its `csp_hashes()` only after this has returned.
    `hub` returns the whole application once it exists."""
    app = _DashApp(
        "gpudeck",
        server=server,  # type: ignore[arg-type]  # a Flask is what it takes
        assets_folder=str(ASSETS),
        assets_ignore=_NOT_LINKED,
        index_string=index(),
        title="gpudeck",
        csrf_token_name=csrf_cookie,
        # A callback's components may be on a page that is not shown.
        suppress_callback_exceptions=True,
        enable_mcp=False,
        # Otherwise the title flickers with each callback.
        update_title=None,  # type: ignore[arg-type]
    )
    viewers_hub = ViewersHub(hub)
    sites = SitePages(site_pages, SiteThreads(), viewers_hub)
    app.router = PageRouter(PAGES, sites, caller)
    app.bundles = Bundles(ASSETS)
    app.bundles.serve(server)
    app.layout = app.router.layout
    app.callback(Output(MAIN, "children"), Input(MAIN, "pathname"), prevent_initial_call=True)(
        app.router.content)
    FigureCallbacks(SiteThreads(), viewers_hub).register(app)
    PageCallbacks(SiteThreads(), viewers_hub, [
        (page.key, page.reading) for page in PAGES if page.reading is not None]).register(app)
    sites.register(app)
    return app
