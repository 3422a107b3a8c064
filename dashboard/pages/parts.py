"""The small pieces that pages are made of."""

from typing import Any

from dash import html
from dash.development.base_component import Component


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
