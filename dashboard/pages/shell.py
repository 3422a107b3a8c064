"""The frame around every page: bar, connection banner, help; the HTML before Dash has loaded."""

import json
from collections.abc import Iterable

from dash.development.base_component import Component

from gpudeck.contract.action_table import rows_json
from gpudeck.markup import icon_button, make

from .fleet import metric_catalogue
from .history import plotly_address
from .parts import Page

# A blocking script in the head sets the theme on the root, so that nothing is ever painted in the
# wrong colours. `optional` fonts never swap, so the preload has them ready in time.
HEAD = """
<meta name="color-scheme" content="dark light">
<link rel="icon" href="/assets/favicon.svg" type="image/svg+xml">
<link rel="manifest" href="/assets/manifest.webmanifest">
<link rel="preload" href="/assets/vendor/inter/inter-latin-wght-normal.woff2" as="font" type="font/woff2" crossorigin>
<script src="/assets/theme.js"></script>
"""  # noqa: E501
AFTER_TABLES = """<title>{%title%}</title>
{%css%}
</head>
<body>
{%app_entry%}
<noscript><p class="noscript">gpudeck draws live numbers and needs JavaScript.</p></noscript>
<footer hidden>
{%config%}
{%scripts%}
{%renderer%}
</footer>
</body>
</html>"""

# In place of Dash's "Loading...": the bar is there before any script has run.
WAITING = """<div id="react-entry-point"><div class="deck">
<header class="bar"><span class="brand">
<img src="/assets/favicon.svg" alt="" width="22" height="22">gpudeck</span></header>
<main class="opening" aria-busy="true"><p>Opening …</p></main>
</div></div>"""


PAGE_ROWS = "PAGE_ROWS"  # placeholder in the index: the rows depend on who is signed in


def page_rows(pages: Iterable[Page]) -> str:
    return _json([page.row() for page in pages])


def index() -> str:
    """Return the HTML with the tables that the browser shares with the hub."""
    tables = {"action-table": rows_json(), "page-table": PAGE_ROWS,
              "metric-table": _json(metric_catalogue()), "plotly-address": _json(plotly_address())}
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n{%metas%}' + HEAD
            + "".join(_tag(name, rows) for name, rows in tables.items()) + AFTER_TABLES)


def table_tag(name: str, table: object) -> str:
    return _tag(name, _json(table))


def _tag(name: str, rows: str) -> str:
    return f'<script type="application/json" id="{name}">{rows}</script>'


def _json(table: object) -> str:
    return json.dumps(table).replace("<", "\\u003c")


def parts_above(pages: Iterable[Page]) -> list[Component]:
    """Return the parts above the page."""
    return [make("a.skip", "Skip to the content", href="#main"),
            _bar(pages),
            make("div#held.held", hidden=True, role="status")]


def parts_below() -> list[Component]:
    return [make("div#banner.banner", role="alert", hidden=True),
            make("aside#tray.tray", hidden=True, aria_label="Actions")]


def _bar(pages: Iterable[Page]) -> Component:
    return make("header.bar", [
        make("a.brand", [make("img", src="/assets/favicon.svg", alt="", width="22", height="22"),
                         "gpudeck"], href="/"),
        make("nav", [make("a", page.name, href=page.address) for page in pages
                     if page.address is not None], aria_label="Pages"),
        # To the left of the rest: it appears once the user is known, and moves nothing.
        make("button#hold.button.hold-button", [
            make("span.stop-mark"), make("span.stop-words", "Stop all actions")], hidden=True,
            title="Stop all actions on every node", aria_label="Stop all actions"),
        make("div#link.link.connecting", [make("span.dot"), make("span#link-words", "Connecting")],
             role="status"),
        icon_button("theme", "theme", "Dark or light (t)"),
        icon_button("help", "help", "Keyboard and help (?)"),
        make("div.account", [
            icon_button("account", "person", "Your account", aria_expanded="false",
                        aria_controls="account-menu"),
            make("div#account-menu.account-menu", [
                make("p", [make("strong#account-name", "…"), make("span#account-role", "")]),
                make("a", "Account and password", href="/settings#you"),
                make("a", "Where you are signed in", href="/settings#sign-ins"),
                make("button#sign-out", "Sign out"),
                make("button#sign-out-everywhere", "Sign out everywhere")], hidden=True)])])
