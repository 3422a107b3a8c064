"""The Quotas page. assets/quotas/quotas.mjs has what somebody writes there: the form, which checks
what is typed, and the picture of a holder's past."""

from typing import Annotated, ClassVar

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client import Client
from gpudeck.errors import CommandError
from gpudeck.markup import make

from ..access.policy import Role
from .graphs import QUOTA_PAST, AnsweredFigure
from .parts import Page, literal, problem
from .quota_cards import (
    NONE_OF_ADMIN,
    NONE_YET,
    Item,
    cards,
    holders_over,
    means,
    path_of,
    summary,
    versions,
)
from .reading import Parts, Reading, View, Viewer, viewer
from .words import amount, sentence

EVERY_S = 5.0
REMOVED = ("The limit ends within seconds on every connected node. Earlier versions are kept.")


class QuotasView(View):
    """Choice of the quota whose versions are shown in a dialog, once."""

    versions: Annotated[str, Meta(max_length=64)] = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("versions",))


def frame() -> Component:
    return make("div#quotas.quotas-page", [
        make("header.quotas-head", [
            make("div", [make("h1", "Quotas"), make("p#quotas-words", "", role="status")]),
            make("button#quotas-new.button", "New quota …", hidden=True,
                 data_edit={"quota": None, "generation": None})]),
        problem("quotas"),
        make("p#quotas-none.none", "Loading …", role="status"),
        make("ul#quotas-place.quotas-place"),
        # A dialog takes it while it is open.
        make("div#quota-figure", AnsweredFigure(QUOTA_PAST), hidden=True),
        make("details#quotas-means.quotas-means", [
            make("summary", "How nodes enforce quotas"),
            make("ul#quotas-means-list")], hidden=True)], hidden=True, data_unsettled="")


def answer(client: Client, view: QuotasView, now: float) -> Parts:
    parts = parts_of(client.hub.get("quotas"), viewer(client), now)
    if view.versions:
        parts["quota-versions"] = _versions(client, view)
        view.versions = ""
    return parts


def _versions(client: Client, view: QuotasView) -> list[Component]:
    try:
        return versions(client.hub.items(f"{path_of(view.versions)}/versions"), view.zone)
    except CommandError as error:
        return [make("li", sentence(str(error)))]


def parts_of(quotas: Item, person: Viewer, now: float) -> Parts:
    """Return what stands on the page. Pure."""
    items, mechanisms, over = quotas["items"], quotas["mechanisms"], holders_over(quotas["items"])
    nothing = NONE_OF_ADMIN if person.may(Role.ADMIN) else NONE_YET
    return {
        "@tab": f"({amount(len(over))}) Quotas" if over else "Quotas",
        "quotas-words": summary(items), "quotas-new": person.may(Role.ADMIN),
        "quotas-none": None if items else nothing,
        "quotas-place": cards(items, lambda item: _buttons(item, person), now),
        "quotas-means": bool(mechanisms), "quotas-means-list": means(mechanisms)}


def _buttons(item: Item, person: Viewer) -> list[Component]:
    quota = item["quota"]
    buttons = [
        (Role.ADMIN, "Edit", {"data_edit": {"quota": quota, "generation": item["generation"]}}),
        (Role.OPERATOR, "History", {"data_versions": quota["id"]}),
        (Role.ADMIN, "Remove", {"data_form": removal(quota)})]
    return [make("button.button.small", word, aria_label=f"{word} {quota['id']}", data_key=word,
                 **traits) for role, word, traits in buttons if person.may(role)]


def removal(quota: Item) -> Item:
    """Return the order that removes a quota, and the one that takes it back."""
    quota_id, path = quota["id"], path_of(quota["id"])
    before = {name: value for name, value in quota.items() if name != "id"}
    return {"title": f"Remove {quota_id}?", "lead": [REMOVED], "verb": "Remove", "tone": "bad",
            "method": "DELETE", "path": path, "done": f"{quota_id} removed.",
            "undo": {"method": "PUT", "path": path, "body": literal(before), "only_of": None}}


PAGE = Page(
    "quotas", "Quotas", "quotas/quotas.mjs", frame,
    "Limits per owner, current usage, and the nodes on which each quota is in force. Mode "
    "“observe” only shows who is over.", (), "/quotas", ("q", "the quotas"),
    reading=Reading(QuotasView, answer, EVERY_S))
