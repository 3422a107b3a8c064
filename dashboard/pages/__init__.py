"""The pages: Dash draws what stands still, `assets/deck.mjs` draws what lives."""

from pathlib import Path
from typing import Any

import dash
from flask import Flask

from .alerts import alerts_page
from .fleet import fleet_page
from .history import history_page
from .lines import lines_page
from .quotas import quotas_page
from .record import record_page
from .reports import reports_page
from .settings import settings_page
from .shell import INDEX, WAITING, shell
from .tasks import tasks_page

# Beside the program, in the checkout and in the wheel alike.
ASSETS = Path(__file__).resolve().parent.parent.parent / "assets"

# Dash links every script and style sheet it finds. deck.mjs imports the other modules itself, and
# theme.js must run in the head, before the first paint: the index links it there.
_STYLES = ("tokens|deck|forms|fleet|events|tasks|acts|alerts|quotas|lines|limits|history|"
           "record|reports|settings|time|print")
_NOT_LINKED = rf"^(?!deck\.mjs$|(?:{_STYLES})\.css$).*$"


class _DashApp(dash.Dash):
    def interpolate_index(self, **parts: Any) -> str:  # type: ignore[override]
        html: str = super().interpolate_index(**parts | {"app_entry": WAITING})  # type: ignore[no-untyped-call]
        return html


def build_pages(server: Flask) -> dash.Dash:
    """The Dash app on this server. Ask it for `csp_hashes()` only after this has returned."""
    app = _DashApp(
        "gpudeck",
        server=server,  # type: ignore[arg-type]  # a Flask is what it takes
        assets_folder=str(ASSETS),
        assets_ignore=_NOT_LINKED,
        index_string=INDEX,
        title="gpudeck",
        # Otherwise the title flickers with each callback.
        update_title=None,  # type: ignore[arg-type]
    )
    app.layout = shell(fleet_page(), lines_page(), tasks_page(), alerts_page(), quotas_page(),
                       history_page(), reports_page(), record_page(), settings_page())
    return app
