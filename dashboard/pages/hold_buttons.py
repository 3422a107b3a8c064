"""Buttons that stop actions on a node, and resume them."""

from dash.development.base_component import Component

from .forms import order, row_button, text


def stop_button(node: str, host: str, words: str = "Stop actions") -> Component:
    title = f"Stop actions on {host}"
    return row_button(words, {
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
