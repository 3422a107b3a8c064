"""What surrounds every page: bar, connection banner, help; and the HTML before Dash has loaded."""

from dash import html
from dash.development.base_component import Component

from gpudeck.action_table import rows_json

from .help import help_dialog
from .parts import icon_button, marks

# The theme is put on the root by a script in the head that blocks for a moment: nothing is ever
# painted in the wrong colours. `optional` fonts never swap, so the preload makes them be there.
HEAD = """
<meta name="color-scheme" content="dark light">
<link rel="icon" href="/assets/favicon.svg" type="image/svg+xml">
<link rel="preload" href="/assets/vendor/inter/inter-latin-wght-normal.woff2" as="font" type="font/woff2" crossorigin>
<script src="/assets/theme.js"></script>
"""  # noqa: E501
ACTION_TABLE = f'<script type="application/json" id="action-table">{rows_json()}</script>'

INDEX = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n{%metas%}'
    + HEAD + ACTION_TABLE
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
<main class="waiting" aria-busy="true"><p>Opening …</p></main>
</div></div>"""

# (href, name): a page is listed here when it exists.
PAGES = (("/", "Fleet"), ("/tasks", "Tasks"), ("/alerts", "Alerts"), ("/quotas", "Quotas"),
         ("/history", "History"),
         ("/reports", "Reports"), ("/record", "Record"), ("/settings", "Settings"))

def shell(*pages: Component) -> Component:
    """All pages, hidden; assets/deck.mjs shows the one whose address it is. So the layout is one
    and the same answer for everyone, and no callback has to choose."""
    return html.Div(
        className="deck",
        children=[
            html.A("Skip to the content", href="#main", className="skip"),
            _bar(),
            html.Div(id="held", className="held", hidden="hidden", role="status"),
            html.Main(list(pages), id="main", tabIndex="-1"),
            html.Div(id="banner", className="banner", role="alert", hidden="hidden"),
            html.Aside(id="tray", className="tray", hidden="hidden",
                       **marks(aria_label="Acts")),
            help_dialog(),
        ],
    )


def _bar() -> Component:
    return html.Header(
        className="bar",
        children=[
            html.A(
                [html.Img(src="/assets/favicon.svg", alt="", width="22", height="22"), "gpudeck"],
                href="/",
                className="brand",
            ),
            html.Nav([html.A(name, href=href) for href, name in PAGES],
                     **marks(aria_label="Pages")),
            # Left of the rest: it comes when it is known who looks, and moves nothing.
            html.Button("Hold", id="hold", type="button", className="button hold-button",
                        hidden="hidden", title="Stop every act on every node, at once"),
            html.Div(
                [html.Span(className="dot"), html.Span("Connecting", id="link-words")],
                id="link",
                className="link connecting",
                role="status",
            ),
            icon_button("theme", "theme", "Dark or light (t)"),
            icon_button("help", "help", "Keyboard and help (?)"),
            _account(),
        ],
    )


def _account() -> Component:
    return html.Div(
        className="account",
        children=[
            html.Button(html.Span(className="icon icon-person"), id="account",
                        className="icon-button", title="Your account", type="button",
                        **marks(aria_label="Your account", aria_expanded="false",
                                aria_controls="account-menu")),
            html.Div(
                id="account-menu",
                className="account-menu",
                hidden="hidden",
                children=[
                    html.P([html.Strong("…", id="account-name"), html.Span("", id="account-role")]),
                    html.A("You and your password", href="/settings#you"),
                    html.A("Where you are signed in", href="/settings#sign-ins"),
                    html.Button("Sign out", id="sign-out", type="button"),
                    html.Button("Sign out everywhere", id="sign-out-everywhere", type="button"),
                ],
            ),
        ],
    )
