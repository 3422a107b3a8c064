"""The dialog in which a rule is written: asks the hub about each draft, and rehearses it on the
past."""

import json
from typing import Any

from dash.development.base_component import Component

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from gpudeck.markup import make

from ..access.policy import Role
from .drafts import MOST_LETTERS, NEW, read_draft
from .field_elements import page_dialog
from .forms import order
from .graphs import REHEARSAL, AnsweredFigure
from .item_lists import Item
from .parts import literal
from .reading import Parts, Viewer
from .rehearsal_words import approval, approval_refusal
from .rule_form import BEGIN, NEXT_STEPS, RuleFormDraft, draft_fields, outcome_words
from .words import amount, sentence

SPANS = (("3600", "the last hour"), ("86400", "the last day"), ("604800", "the last week"),
         ("2592000", "the last 30 days"))
USUAL_SPAN = "86400"
EVERY_S = 0.7  # while a rehearsal runs
NOTHING_DONE = "No actions are taken and no notifications are sent."
NO_STEPS = "The saved rule takes no action, so nobody has to approve this."
OF_OPERATORS = "Only operators and admins see current matches here."
EMPTY_CHECK: Item = {"problems": [], "rule": None, "yaml": ""}


def rule_dialog() -> Component:
    """Return the frame of the dialog. The figure is Dash's, and stays."""
    return page_dialog(
        "rule-dialog", "edited", ".wide", closed={"draft": "", "rehearsal": ""}, inside=make(
            "form#rule-draft.form.dialog-body", [
                make("div#rule-dialog-body"),
                make("details.rule-group", [make("summary", "Rehearsal"), make(
                    "div.rehearsal.wide", [
                        make("div.rehearsal-ask", [
                            make("select", [
                                make("option", words, value=value,
                                     selected="" if value == USUAL_SPAN else None)
                                for value, words in SPANS],
                                name="span", aria_label="Rehearse over"),
                            rehearse_button(),
                            # Not below the list, which comes later and would move it.
                            make("div#rehearsal-approval", hidden=True)]),
                        make("output#rehearsal-words.rehearsal-words", "", role="status"),
                        make("div#rehearsal-place", AnsweredFigure(REHEARSAL), hidden=True),
                        make("div#rehearsal-figure", hidden=True),
                        make("ul#rehearsal-list.rehearsal-list")])]),
                make("output#rule-check.rule-check", "", role="status"),
                make("p#rule-problem.problem", "", role="alert", hidden=True),
                make("div#rule-foot.dialog-foot")], data_draft="draft", data_most=MOST_LETTERS))


def rehearse_button(is_running: bool = False) -> Component:
    """Return the button, of one rehearsal at once."""
    return make("button#rule-rehearse.button.small", "Rehearse", data_do="rehearse",
                disabled=is_running)


class RuleEditor:
    """The draft of one answer. `item`: the rule that is edited, as the hub has it; None: a new
    one."""

    def __init__(self, client: Client, person: Viewer, item: Item | None, text: str, now: float
                 ) -> None:
        self._client = client
        self._person = person
        self._item = item
        self._now = now
        self._parts: Parts = {}
        fresh = RuleFormDraft(NEW) if item is None else RuleFormDraft(
            item["rule"]["id"], number=item["number"], rule=item["rule"])
        self.draft = read_draft(RuleFormDraft, text, fresh)
        self._is_begun = self.draft is not fresh

    def parts(self, rehearsal: str, zone: str) -> Parts:
        """Return what is in the dialog. The draft is then as it is to be kept."""
        draft, do = self.draft, self.draft.do
        draft.do = ""
        outcome = self._check()
        if do in ("form", "yaml") and do != draft.way:
            outcome = self._turn(do, outcome)
        elif do == "add" or do.startswith("remove "):
            self._change_steps(do)
            outcome = self._check()
        elif do in ("save", "rehearse"):
            self._finish(do, outcome)
        if not self._is_begun:
            self._parts["rule-problem"] = None
        return self._parts | self._form_parts(outcome) | self._rehearsal_parts(rehearsal, zone)

    def _check(self) -> Item:
        """Return what the hub says of the draft; without an answer, why is the problem."""
        draft = self.draft
        if not self._person.may(Role.OPERATOR):
            return EMPTY_CHECK | {"problems": [{"field": "", "message": OF_OPERATORS}]}
        is_yaml = draft.way == "yaml"
        question: Item = {"yaml": draft.values.get("yaml", [draft.yaml])[0]} if is_yaml else {
            "rule": draft.rule_now() | {"id": draft.id or "new"}}
        is_new = draft.is_new and (is_yaml or draft.id != "")
        try:
            return self._client.hub.ask_for("POST", "rule-checks", {**question, "is_new": is_new})
        except CommandError as error:
            return EMPTY_CHECK | {"problems": [{"field": "", "message": str(error)}]}

    def _turn(self, way: Any, outcome: Item) -> Item:
        """Show the draft the other way, as the hub writes it. What is wrong may forbid that."""
        draft = self.draft
        if way == "yaml" and outcome["yaml"]:
            draft.yaml = outcome["yaml"]
        elif way == "form" and outcome["rule"] is not None:
            draft.rule = outcome["rule"]
        else:
            return outcome
        draft.way, draft.values, draft.forms = way, {}, draft.forms + 1
        return self._check()

    def _change_steps(self, do: str) -> None:
        draft = self.draft
        steps = draft.steps()
        if do == "add":
            steps.append(NEXT_STEPS[min(len(steps), len(NEXT_STEPS) - 1)])
        else:
            at = int(do.removeprefix("remove "))
            steps = [*steps[:at], *steps[at + 1:]]
        draft.values = draft.values | {"do": [step for step, _ in steps],
                                       "after": [after for _, after in steps]}
        draft.ladders += 1

    def _finish(self, do: str, outcome: Item) -> None:
        """Order what the browser then sends: that the rule is saved, or rehearsed."""
        draft, rule = self.draft, outcome["rule"]
        draft.is_tried = True
        problem = "rule-problem" if do == "save" else "rehearsal-words"
        if outcome["problems"] or rule is None:
            self._parts[problem] = "See the error above." if draft.way == "yaml" else (
                "Some fields have errors; see the fields and the summary above.")
            return
        if not draft.is_new and rule["id"] != draft.of:
            self._parts[problem] = f"The id of a rule cannot be changed: {draft.of}."
            return
        self._parts["rule-problem"] = None
        self._parts["@order"] = json.dumps(self._save_order(rule) if do == "save" else
                                           self._rehearsal_order(rule))

    def _save_order(self, rule: Item) -> Item:
        body = {name: value for name, value in rule.items() if name != "id"}
        return order("PUT", "rules", rule["id"], body=literal(body), only_of=self.draft.number,
                     done=f"“{rule['title']}” is active, mode {{mode:words}}.")

    def _rehearsal_order(self, rule: Item) -> Item:
        span = float(self.draft.text("span") or USUAL_SPAN)
        return order("POST", "rules", "backtests", body={
            "rule": literal(rule), "start": self._now - span, "end": self._now},
            sets={"rehearsal": "id"})

    def _form_parts(self, outcome: Item) -> Parts:
        draft, may_save = self.draft, self._person.may(Role.ADMIN)
        title = "New rule" if self._item is None else self._item["rule"]["title"]
        lines = outcome_words(outcome, draft)
        tone = ".bad" if outcome["problems"] and lines != [BEGIN] else ""
        return {
            "rule-dialog-title": title if may_save else
            f"{title} (read-only: only admins change rules)",
            "rule-dialog-body": draft_fields(draft, outcome["problems"]),
            "rule-check": make(f"output#rule-check.rule-check{tone}", [
                make("p", line) for line in lines], role="status"),
            "rule-foot": [
                make("button.button", "Cancel" if may_save else "Close", data_close=""),
                *([make("button.button.first", "Save rule" if draft.is_new else "Save changes",
                        type="submit")] if may_save else [])]}

    def _rehearsal_parts(self, rehearsal: str, zone: str) -> Parts:
        """Return how far a rehearsal is; its figure asks for itself, and comes with its words."""
        if rehearsal == "":
            return {"rehearsal-place": False, "rehearsal-figure": None, "rehearsal-list": None,
                    "rehearsal-approval": None, "rule-rehearse": rehearse_button(),
                    "rehearsal-words": self._parts.get("rehearsal-words", NOTHING_DONE)}
        try:
            item = self._client.rehearsal(rehearsal)
        except CommandError as error:
            return {"rehearsal-words": sentence(str(error)), "rule-rehearse": rehearse_button()}
        if item["state"] == "running":
            return {"rehearsal-words": f"Rehearsing … {amount(100 * item['progress'])} %",
                    "rule-rehearse": rehearse_button(is_running=True), "@every": EVERY_S}
        figure = make("div#rehearsal-figure", data_figure=REHEARSAL, data_problem="rehearsal-words",
                      data_request={"id": rehearsal, "zone": zone}, data_at=item["end"])
        return {"rule-rehearse": rehearse_button(), "rehearsal-figure": figure,
                "rehearsal-approval": self._approval(item)}

    def _approval(self, rehearsal: Item) -> list[Component] | None:
        """Return what approves a rehearsal of the rule as it is saved, or why nobody has to."""
        item = self._item
        if item is None or rehearsal["state"] != "done":
            return None
        if not item["rule"]["ladder"]:
            return [make("p", NO_STEPS)]
        if rehearsal["approved_by"] is not None:
            return [make("p", f"Approved by {rehearsal['approved_by']}.")]
        version, person = item["version"], self._client.me()
        return approval(rehearsal, version, person) or [
            make("p", approval_refusal(rehearsal, version, person))]
