"""Questions of pages: what a dialog asks, and what is then sent. The browser opens and sends
them (assets/reading/read_page.mjs); no password and no secret comes here."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from dash.development.base_component import Component

from gpudeck.markup import make

Form = dict[str, Any]
Field = dict[str, Any]
Choices = Sequence[tuple[str, str]]  # value and words
MOMENT = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?"


def order(method: str, *path: str, body: Any = None, query: Mapping[str, str] | None = None,
          **more: Any) -> Form:
    """Return what is sent: a method, a path whose parts may be any text, and a body, in which
    `$NAME` is the value of a field."""
    address = "/".join(quote(part, safe="") for part in path)
    form = {"method": method, "path": f"{address}?{urlencode(query)}" if query else address, **more}
    return form if body is None else form | {"body": body}


def sure(title: str, verb: str, lead: str, what: Form) -> Form:
    """Return a question for a yes, of what is hard to undo."""
    return {"title": title, "verb": verb, "lead": lead, "tone": "bad"} | what


def form_button(selector: str, words: str, form: Form, label: str | None = None) -> Component:
    return make(f"button{selector}", words, data_form=form, aria_label=label)


def row_button(words: str, form: Form, label: str) -> Component:
    """Return a button of a row; `label` says which thing it is about."""
    return form_button(".button.small", words, form, label)


def text(name: str, label: str, value: str = "", hint: str | None = None, **more: Any) -> Field:
    """Return a field. `as_`: how its text becomes a value; `empty`: its value without a text, or
    null; `more`: attributes of its input."""
    rules = {key: more.pop(parameter) for key, parameter in (
        ("as", "as_"), ("empty", "empty"), ("type", "type")) if parameter in more}
    return {"name": name, "label": label, "type": "text", "value": value, **rules,
            **({} if hint is None else {"hint": hint}), "traits": more}


def moment_field(name: str, label: str, at: datetime, hint: str | None = None) -> Field:
    """Return a field for a moment in the viewer's zone. Not `datetime-local`: that shows 12-hour
    times to some, next to lists and axes of 24 hours."""
    return text(name, label, f"{at:%Y-%m-%d %H:%M}", hint, as_="local_time", required="",
                maxlength="19", pattern=MOMENT, placeholder="2026-01-31 14:00",
                title="Date and time of 24 hours, such as 2026-01-31 14:00")


def choice(name: str, label: str, options: Choices, value: str) -> Field:
    return {"name": name, "label": label, "type": "choice", "value": value,
            "options": [[*option] for option in options]}


def area(name: str, label: str, value: str = "", hint: str | None = None, **more: Any) -> Field:
    """Return a field of several lines."""
    return text(name, label, value, hint, **more) | {"type": "area"}


def check(name: str, label: str, value: bool = False, hint: str | None = None) -> Field:
    return {"name": name, "label": label, "type": "check", "value": value,
            **({} if hint is None else {"hint": hint})}


def new_password(user: str) -> Field:
    """Return two fields for one new password, with the name for password managers."""
    return {"type": "new_password", "name": "password", "user": user}
