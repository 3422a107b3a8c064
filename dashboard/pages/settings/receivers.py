"""Receivers of notifications in Settings: where alerts go, how each has been doing, and what still
waits."""

from collections.abc import Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..forms import Field, Form, check, choice, form_button, order, row_button, sure, text
from ..item_lists import Item, ItemList, ViewContext, stacked
from ..words import amount, plural, when

LEASTS = (("info", "all"), ("warn", "warning and critical"), ("crit", "critical only"))
NO_MAIL = "Mail is not set up: start the hub with --smtp-host and --smtp-from."
KEPT = "Leave empty to keep the current value."
TEXT_BODY = ("name", "kind", "least", "rules", "to", "token", "token_file", "is_on", "template",
             "headers")


def receivers_list(receivers: Item, waiting: Item, rules: Sequence[str], context: ViewContext
                   ) -> list[Any]:
    """Return receivers and what waits for them, as `GET receivers` and `GET notices` say it."""
    kinds = {kind["kind"]: kind for kind in receivers["kinds"]}
    names = {one["id"]: one["name"] for one in receivers["items"]}
    own = ItemList(
        "Receivers", (
            ("Receiver", lambda one: stacked(make("strong.name", one["name"]),
                                             make("small", one["kind"]))),
            ("To", lambda one: stacked(
                make("span", kinds[one["kind"]]["to_words"] or one["to"]),
                make("small", kinds[one["kind"]]["wants_words"] or _wants(one)))),
            ("State", lambda one: stacked(*_state(one, context)))),
        lambda one: str(one["id"]), "No receivers: alerts only appear on the Alerts page.",
        lambda one: _actions(one, receivers, rules))
    return [own.draw(receivers["items"]), make("h3.section-more", "Not delivered yet"),
            _waiting_list(names, context).draw(waiting["items"]), *_more(receivers, waiting)]


def add_button(receivers: Item, rules: Sequence[str]) -> Component:
    form = {"title": "Add a receiver", "verb": "Add", "fields": _fields(None, receivers, rules)}
    return form_button("#add-receiver.button.first", "Add a receiver",
                       form | order("POST", "receivers", body=_body("$kind")))


def _actions(one: Item, receivers: Item, rules: Sequence[str]) -> list[Component]:
    name, at = one["name"], ("receivers", one["id"])
    form: Form = {"title": name, "verb": "Save", "fields": _fields(one, receivers, rules)}
    return [
        row_button("Test", order("POST", *at, "test", doing="Sending a test …",
                                 done="Test: {words}."), f"Test {name}"),
        row_button("Edit", form | order("PUT", *at, body=_body(one["kind"])), f"Edit {name}"),
        row_button("Remove", sure(f"Remove {name}", "Remove", _loss(one["waiting"] + one["parked"]),
                                  order("DELETE", *at)), f"Remove {name}")]


def _loss(count: int) -> str:
    if count == 0:
        return "No more notifications are sent there."
    return f"{plural(count, 'waiting notification')} {'is' if count == 1 else 'are'} dropped."


def _body(kind: str) -> dict[str, str]:
    return {name: f"${name}" for name in TEXT_BODY} | {"kind": kind}


def _fields(one: Item | None, receivers: Item, rules: Sequence[str]) -> list[Field]:
    """Return the fields of a receiver; of a new one, each is there only for the kinds that have
    it."""
    old = one or {"name": "", "to": "", "least": "warn", "rules": [], "has_token": False,
                  "token_file": "", "template": "", "headers": {}, "is_on": True}
    kinds = receivers["kinds"] if one is None else [
        kind for kind in receivers["kinds"] if kind["kind"] == one["kind"]]

    def for_kinds(*fields: Field, **traits: Any) -> list[Field]:
        fit = [kind["kind"] for kind in kinds
               if all(kind[key] == value for key, value in traits.items())]
        only = {} if len(fit) == len(kinds) else {"only": {"kind": fit}}
        return [field | only for field in fields] if fit else []

    return [
        text("name", "Name", old["name"], required="", maxlength="100", placeholder="ops chat"),
        *([choice("kind", "Kind", [(kind["kind"], kind["title"]) for kind in kinds],
                  kinds[0]["kind"])] if one is None else []),
        *for_kinds(_url_field(one), destination="url"),
        *for_kinds(text("to", "Addresses", old["to"], "Up to 20, separated by commas.",
                        required="", maxlength="2000", placeholder="ops@example.org"),
                   destination="addresses"),
        *for_kinds(choice("least", "Severity", LEASTS, old["least"]), _rules_field(old, rules),
                   wants_words=""),
        *for_kinds(*_token_fields(old), destination="url"),
        *for_kinds(*_template_fields(old), has_template=True),
        check("is_on", "On", old["is_on"], "Off: nothing is sent; waiting notifications stay "
              "queued."),
        *([] if receivers["has_mail"] else for_kinds({"type": "problem", "label": NO_MAIL},
                                                     needs_mail=True))]


def _url_field(one: Item | None) -> Field:
    """Return the field of a URL, whose path is a secret that the hub keeps."""
    if one is None:
        return text("to", "URL", "", "https:// or http://. The path is not shown again.",
                    type="url", maxlength="2000", required="",
                    placeholder="https://hooks.example.org/…")
    return text("to", "URL", "", KEPT, type="url", empty="", maxlength="2000",
                placeholder=one["to"])


def _rules_field(old: Item, rules: Sequence[str]) -> Field:
    field = text("rules", "Rules", ", ".join(old["rules"]), "Rule ids, separated by commas. Empty: "
                 "all.", as_="words", maxlength="4000", placeholder="all rules")
    return field | {"suggest": [*rules]}


def _token_fields(old: Item) -> list[Field]:
    return [
        text("token", "Token", "", f"Sent as Authorization: Bearer. Never shown again."
             f"{f' {KEPT}' if old['has_token'] else ''}", type="password", autocomplete="off",
             empty="", maxlength="2000"),
        text("token_file", "Or a token file", old["token_file"], "A file name in the “secrets” "
             "folder of the hub's data folder.", empty="", maxlength="64")]


def _template_fields(old: Item) -> list[Field]:
    lines = "\n".join(f"{name}: {value}" for name, value in old["headers"].items())
    return [
        text("template", "Template", old["template"], "JSON with {{title}}, {{text}}, {{status}}, "
             "{{severity}}, {{places}}, {{url}} and more: see the docs.", type="area",
             empty="", maxlength="10000", placeholder='{"text": "{{text}}"}'),
        text("headers", "Headers", lines, "One per line. {{token}} becomes the token.",
             type="area", as_="headers", maxlength="4000", placeholder="X-Api-Key: {{token}}")]


def _wants(one: Item) -> str:
    least = dict(LEASTS)[one["least"]]
    return ", ".join(part for part in (
        "all alerts" if least == "all" else least,
        f"of {', '.join(one['rules'])}" if one["rules"] else "") if part)


def _state(one: Item, context: ViewContext) -> list[Component]:
    delivered, now = one["told_at"], context.now
    notes = [
        "nothing delivered yet" if delivered is None else f"last delivered {when(delivered, now)}",
        *(f"{amount(one[key])} {words}" for key, words in (
            ("waiting", "waiting"), ("parked", "set aside"),
            ("unreached", "for owners without an address"), ("dropped", "dropped (queue full)"))
          if one[key] > 0)]
    tone, word = (("", "off") if not one["is_on"] else (".lost", "not delivered") if one["error"]
                  else ("", "idle") if delivered is None else (".ok", "well"))
    error = f"{one['error']}, {when(one['error_at'], now)}"
    return [make(f"span.pill{tone}", word), make("small", ", ".join(notes)),
            *([make("small", error)] if one["error"] else []), *_test(one, now)]


def _test(one: Item, now: float) -> list[Component]:
    test = one["test"]
    if test is None:
        return []
    tone, word = (".ok", "delivered") if test["is_taken"] else (".lost", "not delivered")
    words = f"Test {word}: {test['words']}, {when(one['tested_at'], now)}"
    return [make(f"small.test-answer{tone}", words)]


def _waiting_list(names: dict[str, str], context: ViewContext) -> ItemList:
    return ItemList(
        "Waiting notifications", (
            ("Notification", lambda one: stacked(make("span", one["title"]), make("small", [
                f"for {names.get(one['receiver'], 'a removed receiver')}, ",
                context.ago(one["at"])]))),
            ("State", lambda one: stacked(*_waits(one, context.now)))),
        lambda one: str(one["id"]), "All notifications delivered.",
        lambda one: [
            row_button("Try again", order("POST", "notices", one["id"], "retry", done="Retrying"),
                       f"Try again: {one['title']}"),
            row_button("Drop", sure("Drop this notification?", "Drop",
                                    f"{one['title']}: it will not be sent.",
                                    order("DELETE", "notices", one["id"])),
                       f"Drop: {one['title']}")])


def _waits(one: Item, now: float) -> list[Component]:
    attempts = plural(one["attempts"], "attempt")
    if one["state"] == "parked":
        pill, words = make("span.pill.lost", "set aside"), (
            f"{when(one['parked_at'], now)}, after {attempts}")
    else:
        pill, words = make("span.pill.stale", "waits"), (
            "sending" if one["attempts"] == 0 else
            f"{attempts}, next try {when(one['next_at'], now)}")
    return [pill, make("small", words), *([make("small", one["error"])] if one["error"] else [])]


def _more(receivers: Item, waiting: Item) -> list[Component]:
    more, muted = waiting["total"] - len(waiting["items"]), receivers["muted"]
    words = [f"{amount(more)} more waiting."] if more > 0 else []
    if muted == 1:
        words.append("1 alert was silenced or suppressed until it was resolved; no notification "
                     "was sent.")
    elif muted > 1:
        words.append(f"{amount(muted)} alerts were silenced or suppressed until they were "
                     "resolved; no notifications were sent.")
    return [make("p.none", " ".join(words))] if words else []
