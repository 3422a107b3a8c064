"""What surrounds every page: bar, connection banner, help; and the HTML before Dash has loaded."""

from typing import Any

from dash import html
from dash.development.base_component import Component

# The theme is put on the root by a script in the head that blocks for a moment: nothing is ever
# painted in the wrong colours. `optional` fonts never swap, so the preload makes them be there.
HEAD = """
<meta name="color-scheme" content="dark light">
<link rel="icon" href="/assets/favicon.svg" type="image/svg+xml">
<link rel="preload" href="/assets/vendor/inter/inter-latin-wght-normal.woff2" as="font" type="font/woff2" crossorigin>
<script src="/assets/theme.js"></script>
"""  # noqa: E501

INDEX = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n{%metas%}'
    + HEAD
    + """<title>{%title%}</title>
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
)

# In place of Dash's "Loading...": the bar stands before a single script has run.
WAITING = """<div id="react-entry-point"><div class="deck">
<header class="bar"><span class="brand">
<img src="/assets/favicon.svg" alt="" width="22" height="22">gpudeck</span></header>
<main class="waiting" aria-busy="true"><p>Opening the fleet …</p></main>
</div></div>"""

# (href, name): a page is listed here when it exists.
PAGES = (("/", "Fleet"),)

SHORTCUTS = (
    ("/", "go to the filter"),
    ("g f", "go to the fleet"),
    ("← ↑ ↓ →", "move over the heatmap, when it has the focus"),
    ("Home  End", "first and last Gpu of the heatmap"),
    ("Enter", "open the Gpu under the mark"),
    ("Space", "add it to the selection, or take it out"),
    ("Shift + click", "select from the last one to this one"),
    ("Ctrl + click", "add to the selection, or take out"),
    ("Esc", "close, then clear the selection, then clear the filter"),
    ("v", "heatmap or table"),
    ("t", "dark or light"),
    ("?", "this help"),
)


def shell(page: Component, here: str = "/") -> Component:
    return html.Div(
        className="deck",
        children=[
            html.A("Skip to the heatmap", href="#heatmap", className="skip"),
            _bar(here),
            html.Main(page, id="main"),
            html.Div(id="banner", className="banner", role="alert", hidden="hidden"),
            _help(),
        ],
    )


def _bar(here: str) -> Component:
    return html.Header(
        className="bar",
        children=[
            html.A(
                [html.Img(src="/assets/favicon.svg", alt="", width="22", height="22"), "gpudeck"],
                href="/",
                className="brand",
            ),
            html.Nav([_page_link(href, name, here) for href, name in PAGES],
                     **marks(aria_label="Pages")),
            html.Div(
                [html.Span(className="dot"), html.Span("Connecting", id="link-words")],
                id="link",
                className="link connecting",
                role="status",
            ),
            icon_button("theme", "theme", "Dark or light (t)"),
            icon_button("help", "help", "Keyboard and help (?)"),
            icon_button("sign-out", "sign-out", "Sign out"),
        ],
    )


def _page_link(href: str, name: str, here: str) -> Component:
    return html.A(name, href=href, **(marks(aria_current="page") if href == here else {}))


def icon_button(ident: str, icon: str, label: str) -> Component:
    return html.Button(
        html.Span(className=f"icon icon-{icon}"),
        id=ident,
        className="icon-button",
        title=label,
        type="button",
        **marks(aria_label=label),
    )


def marks(**values: str) -> dict[str, Any]:
    """`aria_label="x"` as Dash and HTML spell it: `aria-label`."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def _help() -> Component:
    rows = [html.Div([html.Dt(html.Kbd(keys)), html.Dd(what)]) for keys, what in SHORTCUTS]
    return html.Dialog(
        id="help-dialog",
        className="dialog",
        **marks(aria_labelledby="help-title"),
        children=[
            html.Div([html.H2("Keyboard", id="help-title"),
                      icon_button("help-close", "close", "Close (Esc)")], className="dialog-head"),
            html.Dl(rows, className="shortcuts"),
        ],
    )
