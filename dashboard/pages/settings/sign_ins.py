"""Sessions of a person in Settings and, for admins, attempts to sign in."""

from collections.abc import Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ...access.sign_in_attempts import LET_IN
from ..forms import form_button, order, row_button, sure
from ..item_lists import Item, ItemList, ViewContext

HOW = {"password": "password", "link": "one-time link", "proxy": "the proxy",
       "again": "password confirmed"}
OUTCOMES = {LET_IN: ("signed in", ".ok"), "refused": ("refused", ".lost"),
            "throttled": ("throttled", ".stale")}


def sessions_list(sessions: Sequence[Item], attempts: Sequence[Item] | None, context: ViewContext
                  ) -> list[Component]:
    """Return the list of sessions, and that of attempts. None: they are for admins."""
    column: tuple[Any, ...] = (("Who", lambda one: make("strong.name", one["user"])),)
    own = ItemList(
        "Where you are signed in", (
            *(column if attempts is not None else ()), ("From", _origin),
            ("By", lambda one: HOW.get(one["how"], one["how"])),
            ("Since", lambda one: context.ago(one["created_at"])),
            ("Last used", lambda one: context.ago(one["last_used_at"]))),
        lambda one: str(one["id"]), "No sessions.", _end)
    in_order = sorted(sessions, key=lambda one: (not one["is_this"], -one["last_used_at"]))
    return [own.draw(in_order), *([] if attempts is None else _attempts(attempts, context))]


def everywhere_button() -> Component:
    return form_button("#end-all-sessions.button", "Sign out everywhere", sure(
        "Sign out everywhere?", "Sign out everywhere", "All your sessions end, including this one. "
        "Tokens stay valid.", order("POST", "sign-out-everywhere", then="/sign-in")))


def _origin(session: Item) -> list[Component]:
    this = [make("span.pill.ok", "this session")] if session["is_this"] else []
    return [make("span", session["from"]), *this]


def _end(session: Item) -> list[Component]:
    words = f"{session['user']} was signed out at {session['from']}."
    return [] if session["is_this"] else [row_button(
        "End", order("DELETE", "sessions", session["id"], done=words),
        f"End the session of {session['user']} from {session['from']}")]


def _attempts(attempts: Sequence[Item], context: ViewContext) -> list[Component]:
    return [make("h3", "Sign-in attempts"), make("p.about", "The newest 200."), ItemList(
        "Sign-in attempts", (
            ("When", lambda one: context.ago(one["at"])),
            ("Name as typed", lambda one: make("span.name", one["name"])),
            ("From", lambda one: one["from"]),
            ("By", lambda one: HOW.get(one["how"], one["how"])),
            ("Outcome", lambda one: _outcome(one["outcome"]))),
        lambda one: f"{one['at']} {one['name']} {one['from']}", "No sign-in attempts yet.",
    ).draw(attempts)]


def _outcome(outcome: str) -> Component:
    words, tone = OUTCOMES.get(outcome, (outcome, ""))
    return make(f"span.pill{tone}", words)
