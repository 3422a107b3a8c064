"""Dialogs that are in a page's frame, and the fields of their forms, as assets/parts/dialog.mjs
makes those of questions. From data alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import icon_button, make

from .forms import Field

PLAIN = {"autoComplete": "off", "autoCapitalize": "none", "spellCheck": "false",
         "maxLength": "1024"}
AREA = {"spellCheck": "false", "maxLength": "4000"}
_ATTRIBUTES = {"maxlength": "maxLength"}


def page_dialog(ident: str, field: str, *looks: str, closed: Mapping[str, Any] | None = None,
                inside: Component | None = None) -> Component:
    """Return a dialog that is open while the view's `field` is not empty, with the places of its
    title and its inside. `closed`: fields of the view once it is closed, besides that one."""
    title = f"{ident}-title"
    return make(f"dialog#{ident}.dialog{''.join(looks)}", [
        make("div.dialog-head", [make(f"h2#{title}", ""), icon_button(
            f"{ident}-close", "close", "Close (Esc)", data_close="")]),
        make(f"div#{ident}-body") if inside is None else inside],
        data_open=field, data_closed=json.dumps({field: "", **(closed or {})}),
        aria_labelledby=title)


def dialog_foot(verb: str, form: str = "") -> list[Component]:
    """Return the place of what is wrong and the buttons of a form in a dialog. `form`: its name,
    of which the ids are made, if they need some."""
    problem, save = (f"#{form}-{name}" if form else "" for name in ("problem", "save"))
    return [make(f"p{problem}.problem", "", role="alert", hidden=True),
            make("div.dialog-foot", [make("button.button", "Cancel", data_close=""),
                                     make(f"button{save}.button.first", verb, type="submit")])]


def field_elements(form: str, fields: Sequence[Field]) -> list[Component]:
    return [field_element(form, field) for field in fields]


def field_element(form: str, field: Field, wrong: str | None = None) -> Component:
    """Return a field with its label and hint. `form`: the form's name, of which its ids are made;
    `wrong`: what is wrong with its value, "": nothing is; None: the form tells it elsewhere."""
    name, hint = field["name"], field.get("hint")
    ident = f"{form}-{name.replace('.', '-')}"
    traits = {"name": name, "aria_describedby": None if hint is None else f"{ident}-hint",
              "aria_invalid": None if wrong is None else str(wrong != "").lower()}
    return make(f"p.field{'.wrong' if wrong else ''}", [
        make("label", field["label"], htmlFor=ident), _control(ident, field, traits),
        *([] if hint is None else [make(f"small#{ident}-hint", hint)]),
        *([] if wrong is None else [make("small.field-wrong", wrong, hidden=wrong == "")])],
        data_field=name)


def _control(ident: str, field: Field, traits: dict[str, Any]) -> Component:
    kind, value = field["type"], field.get("value")
    if kind == "choice":
        return make(f"select#{ident}", [
            make("option", words, value=option, selected="" if option == value else None)
            for option, words in field["options"]], **traits)
    more = {_ATTRIBUTES.get(name, name): text for name, text in field.get("traits", {}).items()}
    if kind == "area":
        return make(f"textarea#{ident}", value, **traits | AREA | more)
    return make(f"input#{ident}", **{"type": kind, "value": value} | traits | PLAIN | more)
