"""The Quotas page."""

import json
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlencode

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from gpudeck.markup import make

from ..access.policy import Role
from .drafts import (
    MOST_LETTERS,
    NEW,
    REMOVED_MEANWHILE,
    encode_draft,
    read_draft,
    removed_draft,
)
from .field_elements import dialog_foot, page_dialog
from .forms import order
from .graphs import QUOTA_PAST, AnsweredFigure
from .item_lists import Item
from .parts import READ_PAGE, Page, literal, problem, switch
from .quota_cards import (
    LIMITS,
    NONE_OF_ADMIN,
    NONE_YET,
    cards,
    holders_over,
    means,
    past_key,
    path_of,
    summary,
    versions,
)
from .quota_form import QuotaFormDraft, check_words, problem_words, quota_fields
from .reading import Parts, Reading, View, Viewer, viewer
from .words import amount, sentence

EVERY_S = 5.0
PASTS = (("3h", "3 hours"), ("24h", "24 hours"), ("7d", "7 days"))
PAST_HEIGHT_PX = 180
REMOVED = ("The limit ends within seconds on every connected node. Earlier versions are kept.")
LEAD = ("If several quotas match, the most specific one applies: container, then user, group, "
        "everyone; and the narrower scope.")


class QuotasView(View):
    """Dialogs of the page: the quota whose versions one shows, the holder whose past one shows, and
    the quota that somebody edits, with the draft."""

    versions: Annotated[str, Meta(max_length=64)] = ""
    past: Annotated[str, Meta(max_length=400)] = ""
    last: Literal["3h", "24h", "7d"] = "24h"
    edited: Annotated[str, Meta(max_length=64)] = ""
    draft: Annotated[str, Meta(max_length=MOST_LETTERS)] = ""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset((
        "versions", "past", "last", "edited", "draft"))


def frame() -> Component:
    return make("div#quotas.quotas-page", [
        make("header.quotas-head", [
            make("div", [make("h1", "Quotas"), make("p#quotas-words", "", role="status")]),
            make("button#quotas-new.button", "New quota …", hidden=True, data_set={"edited": NEW},
                 data_step="false")]),
        problem("quotas"),
        make("p#quotas-none.none", "Loading …", role="status"),
        make("ul#quotas-place.quotas-place"),
        make("details#quotas-means.quotas-means", [
            make("summary", "How nodes enforce quotas"),
            make("ul#quotas-means-list")], hidden=True),
        page_dialog("quota-dialog", "edited", closed={"draft": ""}, inside=make(
            "form#quota-draft.form.dialog-body", [
                make("p", LEAD),
                make("output#quota-check.quota-check", "", role="status", tabIndex="0",
                     aria_label="Who would be over now"),
                make("div#quota-dialog-body"),
                *dialog_foot("Save", "quota")], data_draft="draft", data_most=MOST_LETTERS)),
        page_dialog("versions-dialog", "versions"), _past_dialog()],
        hidden=True, data_unsettled="")


def _past_dialog() -> Component:
    """Return the frame of the dialog with a holder's past. The figure is Dash's, and stays."""
    return page_dialog("past-dialog", "past", ".wide", inside=make("div.dialog-body", [
        make("p#quota-past-now.quota-past-now"),
        make("div.quota-spans", [switch("quota-lasts", "How far back", "last", PASTS),
                                 make("span#quota-past-link")]),
        make("div.quota-past", [
            make("div#quota-past-figure", AnsweredFigure(QUOTA_PAST), hidden=True),
            make("p#quota-past-words", "", role="status"), make("div#quota-past-request")]),
        make("div.dialog-foot", make("button.button.first", "Done", data_close=""))]))


def answer(client: Client, view: QuotasView, now: float) -> Parts:
    quotas, person = client.hub.get("quotas"), viewer(client)
    return (parts_of(quotas, person, now) | _version_parts(client, view)
            | past_parts(quotas["items"], view) | _draft_parts(client, view, quotas["items"]))


def _version_parts(client: Client, view: QuotasView) -> Parts:
    if view.versions == "":
        return {}
    try:
        lines = versions(client.hub.items(f"{path_of(view.versions)}/versions"), view.zone)
    except CommandError as error:
        lines = [make("li", sentence(str(error)))]
    return {"versions-dialog-title": f"History of {view.versions}",
            "versions-dialog-body": make("div.dialog-body", [
                make("ul.quota-versions", lines, tabIndex="0", aria_label="Versions"),
                make("div.dialog-foot", make("button.button.first", "Done", data_close=""))])}


def past_parts(items: list[Item], view: QuotasView) -> Parts:
    """Return what is around the figure of a holder's past; the figure brings its words. Pure."""
    balance = next((balance for item in items for balance in item["balances"]
                    if past_key(balance) == view.past), None)
    if view.past == "":
        return {"quota-past-request": None, "quota-past-figure": False,
                "quota-past-words": "Loading …"}
    if balance is None:
        return {}
    quota, holder, limit = (balance[name] for name in ("quota", "holder", "limit"))
    query = urlencode({"owner": f"user:{holder}", "last": "24h"})
    link = make("a", f"Total usage of {holder}", href=f"/history?{query}")
    return {
        "past-dialog-title": f"{holder}: {LIMITS[limit][0]} of {quota}",
        "quota-past-now": f"{balance['sentence']}.",
        "quota-past-link": link if balance["users"] == [holder] else None,
        "quota-past-request": make(
            "div#quota-past-request", data_figure=QUOTA_PAST, data_height=str(PAST_HEIGHT_PX),
            data_problem="quota-past-words", data_hides="quota-past-figure", data_request={
                "quota": quota, "holder": holder, "limit": limit, "last": view.last,
                "most": balance["most"]})}


def _draft_parts(client: Client, view: QuotasView, items: list[Item]) -> Parts:
    item = next((item for item in items if item["quota"]["id"] == view.edited), None)
    if item is None and view.edited != NEW:
        view.draft = removed_draft(QuotaFormDraft(view.edited), view.draft)
        if view.draft == "":
            view.edited = ""
            return {}
        return {"quota-problem": REMOVED_MEANWHILE}
    fresh = QuotaFormDraft(NEW) if item is None else QuotaFormDraft(
        view.edited, generation=item["generation"], quota=item["quota"])
    draft = read_draft(QuotaFormDraft, view.draft, fresh)
    is_saved, draft.do, draft.is_tried = draft.do == "save", "", draft.is_tried or bool(draft.do)
    quota = draft.quota_now()
    try:
        outcome = client.hub.ask_for("POST", "quota-checks", {
            "quota": quota | {"id": quota["id"] or "new"},
            "is_new": draft.is_new and (quota["id"] != "" or is_saved)})
    except CommandError as error:
        outcome = {"problems": [{"field": "", "message": str(error)}]}
    view.draft = encode_draft(draft)
    return draft_parts(draft, outcome) | (saved_parts(draft, outcome) if is_saved else
                                        {"quota-problem": None} if draft is fresh else {})


def draft_parts(draft: QuotaFormDraft, outcome: Item) -> Parts:
    """Return the form of a quota. Pure."""
    lines = check_words(outcome, draft.quota_now()["subject"])
    tone = ".bad" if outcome["problems"] else ""
    return {"quota-dialog-title": "New quota" if draft.is_new else f"Edit {draft.of}",
            "quota-check": make(f"output#quota-check.quota-check{tone}", [
                make("p", line) for line in lines], role="status", tabIndex="0",
                aria_label="Who would be over now"),
            "quota-dialog-body": quota_fields(draft, outcome["problems"]),
            "quota-save": "Save quota" if draft.is_new else "Save changes"}


def saved_parts(draft: QuotaFormDraft, outcome: Item) -> Parts:
    """Return the order that saves the quota, or why there is none. Pure."""
    if outcome["problems"]:
        return {"quota-problem": " ".join(map(problem_words, outcome["problems"]))}
    quota = draft.quota_now()
    body = {name: value for name, value in quota.items() if name != "id"}
    return {"quota-problem": None, "@order": json.dumps(order(
        "PUT", "quotas", quota["id"], body=literal(body), only_of=draft.generation))}


def parts_of(quotas: Item, person: Viewer, now: float) -> Parts:
    """Return the parts of the page. Pure."""
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
    buttons: list[tuple[Role, str, Item]] = [
        (Role.ADMIN, "Edit", {"data_set": {"edited": quota["id"]}, "data_step": "false"}),
        (Role.OPERATOR, "History", {"data_set": {"versions": quota["id"]}, "data_step": "false"}),
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
    "quotas", "Quotas", READ_PAGE, frame,
    "Limits per owner, current usage, and the nodes on which each quota is in force. Mode "
    "“observe” only shows who is over.", (), "/quotas", ("q", "the quotas"),
    reading=Reading(QuotasView, answer, EVERY_S))
