"""The pages: Dash draws what stands still, `assets/deck.mjs` draws what lives."""

import re
from pathlib import Path
from typing import Any

import dash
from flask import Flask, request

from . import (
    alerts,
    fleet,
    history,
    lines,
    missing,
    pool,
    quotas,
    record,
    reports,
    settings,
    tasks,
)
from .help import help_dialog
from .parts import Page
from .shell import WAITING, index, shell

# In the order of the bar. assets/deck.mjs and the keys after `g` read it too, as it comes with the
# index; the last is where one is at an address of none.
PAGES = (fleet.PAGE, lines.PAGE, tasks.PAGE, pool.PAGE, alerts.PAGE, quotas.PAGE, history.PAGE,
         reports.PAGE, record.PAGE, settings.PAGE, missing.PAGE)

# Beside the program, in the checkout and in the wheel alike.
ASSETS = Path(__file__).resolve().parent.parent.parent / "assets"

# Dash links every script and style sheet it finds. deck.mjs imports the other modules itself, and
# theme.js must run in the head, before the first paint: the index links it there.
_NOT_LINKED = r"^(?!deck\.mjs$|[a-z]+\.css$)"


def page_at(path: str) -> Page:
    """assets/deck.mjs finds it alike."""
    return next((page for page in PAGES if page.address == path
                 or (page.addresses and re.search(page.addresses, path))), missing.PAGE)


class _DashApp(dash.Dash):
    def index(self, *names: Any, **named: Any) -> Any:
        html = super().index(*names, **named)  # type: ignore[no-untyped-call]
        return html if page_at(request.path) is not missing.PAGE else (html, 404)

    def interpolate_index(self, **parts: Any) -> str:  # type: ignore[override]
        html: str = super().interpolate_index(**parts | {"app_entry": WAITING})  # type: ignore[no-untyped-call]
        return html


def build_pages(server: Flask, csrf_cookie: str) -> dash.Dash:
    """The Dash app on this server. Ask it for `csp_hashes()` only after this has returned."""
    app = _DashApp(
        "gpudeck",
        server=server,  # type: ignore[arg-type]  # a Flask is what it takes
        assets_folder=str(ASSETS),
        assets_ignore=_NOT_LINKED,
        index_string=index(PAGES),
        title="gpudeck",
        csrf_token_name=csrf_cookie,
        # Otherwise the title flickers with each callback.
        update_title=None,  # type: ignore[arg-type]
    )
    app.layout = shell(PAGES, help_dialog(PAGES))
    return app
