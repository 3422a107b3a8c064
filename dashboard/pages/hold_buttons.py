"""Buttons that stop actions on a node, and resume them; and the line that says how it is there."""

from collections.abc import Mapping
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..access.policy import Role
from .forms import order, row_button, text
from .reading import Viewer
from .words import when

Hold = Mapping[str, Any]  # where actions are stopped, as the hub answers it


def stop_button(node: str, host: str) -> Component:
    title = f"Stop actions on {host}"
    return row_button("Stop actions", {
        "title": f"{title}?", "verb": title, "lead": "Nothing is paused, ended or set there "
        "until someone resumes actions. Running jobs continue.",
        "fields": [text("reason", "Reason (optional)", hint="Shown to everyone, on every page.",
                        empty="stopped from the web pages", maxlength="500")],
        } | order("POST", "hold", body={"node": node, "reason": "$reason"}), title)


def resume_button(node: str, host: str) -> Component:
    title = f"Resume actions on {host}"
    return row_button("Resume actions", {
        "title": f"{title}?", "verb": "Resume actions",
        "lead": f"People and rules can act on {host} again."} | order(
            "DELETE", "hold", query={"node": node}), title)


def hold_line(node: str, host: str, hold: Hold, person: Viewer, now: float) -> Component:
    """Return whether actions on a node are stopped, and the button that changes it: what a file on
    the node stops is resumed only there. Pure."""
    fleet = hold["fleet"]
    stop = next((one for one in hold["nodes"]
                 if one["node"] == node and (one["wanted"] or one["holds"])), fleet)
    words = f"Actions on {host} are allowed."
    if stop is not None:
        since = f" since {when(stop['since'], now)}" if stop["since"] else ""
        words = f"Actions on {host} are stopped{since}."
    button = [] if not person.may(Role.OPERATOR) or fleet is not None else [
        stop_button(node, host)] if stop is None else [
        resume_button(node, host)] if stop["wanted"] else []
    return make(f"p.node-hold{'' if stop is None else '.is-held'}", [make("span", words), *button])
