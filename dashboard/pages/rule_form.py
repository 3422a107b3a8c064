"""The form of a rule and its YAML, two views of one draft, with what is wrong at its field. From
data alone; dashboard/pages/rule_editor.py asks the hub about the draft."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from dash.development.base_component import Component

from gpudeck.markup import make

from .alert_words import targets_words
from .drafts import FormDraft, messages_by_field, number, number_text
from .field_elements import field_element
from .forms import Choices, Field, area, choice, text
from .item_lists import Item
from .words import amount, sentence

MOST_NAMED, MOST_STEPS = 6, 6
OFS: Choices = (("gpu", "a GPU"), ("task", "a task"), ("job", "a job"), ("node", "a node"),
                ("owner", "an owner"), ("fleet", "the fleet"))
SEVERITIES: Choices = (("info", "info"), ("warn", "warning"), ("crit", "critical"))
NO_DATA: Choices = (("alert", "alert: report the missing data"), ("ok", "ok: treat as not met"),
                    ("hold", "hold: keep the current state"))
MODES: Choices = (("observe", "observe: no actions"),
                  ("dry_run", "dry run: actions are only logged"),
                  ("confirm", "confirm: a person approves each action"),
                  ("auto", "auto: runs on its own"))
DOS: Choices = (("tell", "notify the owner"), ("limit", "limit its power"), ("pause", "pause"),
                ("end", "end"))
WHEN_REFUSED: Choices = (("stop", "stop: no further steps"),
                         ("skip", "skip: the next step runs as scheduled"))
# Steps that are added to a ladder in turn: notified, notified again, ended.
NEXT_STEPS = (("tell", "0s"), ("tell", "10m"), ("end", "10m"))
GROUPS: Choices = (("rule", "rule"), ("node", "node"), ("owner", "owner"), ("gpu", "GPU"))
TEXTS = ("title", "scope", "signal", "fire", "clear", "for", "keep_firing_for", "max_gap",
         "cooldown", "owner", "runbook", "expires")
CHOICES = ("of", "severity", "no_data", "mode", "when_refused")
FRESH: Item = {
    "of": "gpu", "scope": "*", "for": "2m", "severity": "warn", "no_data": "alert",
    "mode": "observe", "when_refused": "stop", "keep_firing_for": "0s", "cooldown": "10m",
    "min_coverage": 0.8, "group_by": ["rule", "node"], "budget": {"acts": 5, "within": "10m"}}
# As the check says it of a field that is left out (alerts/core/rule.py).
NEEDED = "is needed"
BEGIN = "Enter a title, a signal and when it fires: what the rule matches now is then shown here."
YAML_HINT = "Same fields and checks as in a rules file. Fields left out get their defaults."
LATER = {"now": " at this moment", "newest": " (latest samples only)"}
MOST_YAML = "20000"


class RuleFormDraft(FormDraft):
    """A rule that somebody writes. `number`: its version that is edited; `rule`: what the fields
    began with; `forms` and `ladders`: how often the fields, and the steps of the ladder, were
    filled since."""

    number: int | None = None
    rule: dict[str, Any] = msgspec.field(default_factory=dict)
    way: Literal["form", "yaml"] = "form"
    yaml: str = ""
    forms: int = 0
    ladders: int = 0

    @property
    def id(self) -> str:
        """Return the rule's id; that of a new rule follows its title until somebody writes one."""
        if not self.is_new:
            return self.of
        typed = self.text("id") if "id" in self.touched else ""
        return typed or self.rule.get("id") or slug(self.text("title"))

    def steps(self) -> list[tuple[str, str]]:
        if not self.values:
            return [(step["do"], step["after"]) for step in self.rule.get("ladder", ())]
        return [*zip(self.values.get("do", ()), map(str.strip, self.values.get("after", ())),
                     strict=True)]

    def rule_now(self) -> Item:
        """Return the rule as it is in the form. A field that only a newer hub knows is kept."""
        if not self.values:
            return {**FRESH, **self.rule, "id": self.id}
        names = (*TEXTS, *CHOICES)
        return {
            **self.rule, **{name: self.text(name) for name in names}, "id": self.id,
            "where": [line.strip() for line in self.text("where").split("\n") if line.strip()],
            "inhibited_by": re.split(r"[\s,]+", self.text("inhibited_by"))
            if self.text("inhibited_by") else [],
            "min_coverage": number(self.text("min_coverage")),
            "group_by": self.values.get("group_by", []),
            "ladder": [{"do": do, "after": after} for do, after in self.steps()],
            "budget": {"acts": number(self.text("budget.acts")),
                       "within": self.text("budget.within")}}


def slug(title: str) -> str:
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", title.lower())
                    if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64]


def ways(draft: RuleFormDraft) -> Component:
    return make("div.switch.rule-views", [
        make("button", words, data_do=way, data_way=way,
             aria_pressed=str(draft.way == way).lower())
        for way, words in (("form", "Form"), ("yaml", "YAML"))], role="group",
        aria_label="Editor")


def draft_fields(draft: RuleFormDraft, problems: Sequence[Item]) -> list[Component]:
    """Return the form, or the YAML. Fields are filled once: what is typed stays."""
    if draft.way == "yaml":
        return [ways(draft), make("div", [make("p.field", [
            make("textarea.rule-yaml", draft.yaml, name="yaml", rows="18", spellCheck="false",
                 maxLength=MOST_YAML, aria_label="The rule as YAML"), make("small", YAML_HINT)])],
            data_key=f"yaml {draft.forms}")]
    wrong = _wrong(draft, problems)
    return [ways(draft), make("div.rule-form", [
        _group(title, fields, draft, wrong, is_folded)
        for title, fields, is_folded in _groups(draft)], data_key=f"form {draft.forms}")]


def _wrong(draft: RuleFormDraft, problems: Sequence[Item]) -> dict[str, str]:
    wrong = messages_by_field(problems)
    if "budget" in wrong:
        wrong["budget.within"] = wrong.pop("budget")
    return draft.wrong(wrong, {"ladder": ("do", "after")})


def _groups(draft: RuleFormDraft) -> list[tuple[str, list[Field], bool]]:
    rule = {**FRESH, **draft.rule}

    line, pick = partial(_line, rule), partial(_pick, rule)
    fixed = {} if draft.is_new else {"readOnly": "readonly"}
    return [
        ("Condition", [
            line("title", "Title", "Shown in the alert and in notifications.", required="",
                 placeholder="Near thermal limit"),
            text("id", "Id", draft.id, "Lower-case letters, digits and dashes. Cannot be changed "
                 "later.", required="", pattern=r"[a-z0-9][a-z0-9\-]{0,63}", maxlength="64",
                 placeholder="near-thermal-limit", **fixed),
            pick("of", "Evaluated per", OFS, "One alert for each of these."),
            line("scope", "Applies to", "The filter language, such as model:h100 & "
                 "node:gpu-rack-3 (matches part of the name). * means all.", required=""),
            line("signal", "Signal", "A metric, or an expression such as avg(util_pct, 5m) or "
                 "power_w / power_limit_w.", required="", placeholder="temp_c"),
            area("where", "Only if", "\n".join(rule.get("where", ())), "One condition per line, "
                 "such as mem_used_bytes >= 1GiB.", rows="2")], False),
        ("When it fires", [
            line("fire", "Fires when", "A comparison: >= 85, < 5, = 1.", required="",
                 placeholder=">= 85"),
            line("clear", "Clears when", "Default: 3 °C, 5 % or one twentieth below the "
                 "threshold.", placeholder="< 80"),
            line("for", "For", "0s fires immediately; from 5m on, whole minutes are evaluated.",
                 required=""),
            line("keep_firing_for", "Clear after", "How long the condition must stay cleared; "
                 "firing again within this time continues the same alert.")], False),
        ("Notifications", [
            pick("severity", "Severity", SEVERITIES),
            {"name": "group_by", "label": "Group notifications by", "type": "checks",
             "options": GROUPS, "value": rule["group_by"],
             "hint": "Alerts with the same values share one notification."},
            text("inhibited_by", "Suppressed by", ", ".join(rule.get("inhibited_by", ())),
                 "Ids of rules. While one of them is firing there, no notification is sent."),
            line("owner", "Contact", "The person or team responsible for this rule."),
            area("runbook", "Runbook", rule.get("runbook", ""), "Included in every notification.",
                 rows="3")], False),
        ("When data is missing", [
            pick("no_data", "Missing data means", NO_DATA),
            text("min_coverage", "Share of samples needed", number_text(rule["min_coverage"]),
                 "Within the time above.", type="number", min="0.01", max="1", step="0.01"),
            line("max_gap", "Longest gap", "Default: three sampling periods.")], True),
        ("Actions", _action_fields(draft, rule), True)]


def _action_fields(draft: RuleFormDraft, rule: Item) -> list[Field]:
    return [
        _pick(rule, "mode", "Mode", MODES),
        {"name": "ladder", "label": "Ladder", "type": "ladder", "steps": draft.steps(),
         "key": f"ladder {draft.ladders}",
         "hint": "From mild to severe; the owner is notified first. The delay counts from the step "
                 "before."},
        _pick(rule, "when_refused", "When a step is refused", WHEN_REFUSED, "Applies to a final "
              "refusal by the node. If a warning is refused, no harsher step follows."),
        _line(rule, "cooldown", "Cool-down", "Minimum time before acting on the same target "
              "again."),
        text("budget.acts", "At most", f"{rule['budget']['acts']}", "Actions of this rule …",
             type="number", min="1", max="100"),
        text("budget.within", "… within", rule["budget"]["within"]),
        _line(rule, "expires", "Until", "The last day of auto, such as 2027-01-31.")]


def _line(rule: Item, name: str, label: str, hint: str | None = None, **more: Any) -> Field:
    return text(name, label, str(rule.get(name) or ""), hint, **{"maxlength": "400", **more})


def _pick(rule: Item, name: str, label: str, options: Choices, hint: str | None = None) -> Field:
    return choice(name, label, options, rule[name]) | ({"hint": hint} if hint else {})


def _group(title: str, fields: Sequence[Field], draft: RuleFormDraft, wrong: Mapping[str, str],
           is_folded: bool) -> Component:
    place = make("div.rule-fields", [_field(field, wrong.get(field["name"])) for field in fields])
    if not is_folded:
        return make("fieldset.rule-group", [make("legend", title), place])
    has_wrong = any(field["name"] in wrong for field in fields)
    return make("details.rule-group", [make("summary", title), place],
                open="" if has_wrong else None)


def _field(field: Field, wrong: str | None) -> Component:
    kinds = {"checks": _checks, "ladder": _ladder}
    if field["type"] not in kinds:
        return field_element("rule", field, wrong=wrong or "")
    looks = ".wide" if field["type"] == "ladder" else ""
    return make(f"div.field{looks}{'.wrong' if wrong else ''}", [
        make("span.label", field["label"]), *kinds[field["type"]](field),
        make("small", field["hint"]), make("small.field-wrong", wrong or "", hidden=not wrong)],
        role="group", aria_label=field["label"], data_field=field["name"])


def _checks(field: Field) -> list[Component]:
    return [make("div.rule-checks", [make("label.check", [
        make("input", type="checkbox", name=field["name"], value=option,
             checked="" if option in field["value"] else None), make("span", words)])
        for option, words in field["options"]])]


def _ladder(field: Field) -> list[Component]:
    steps = field["steps"]
    return [
        make("div.rule-steps", [_step(at, *step) for at, step in enumerate(steps)],
             data_key=field["key"]),
        make("button#rule-add-step.button.small", "Add a step", data_do="add",
             hidden=len(steps) >= MOST_STEPS)]


def _step(at: int, do: str, after: str) -> Component:
    return make("div.rule-step", [
        make("select", [make("option", words, value=value,
                             selected="" if value == do else None) for value, words in DOS],
             name="do", aria_label="Step"),
        make("span", "after"),
        make("input", name="after", value=after, maxLength="20", autoComplete="off",
             aria_label="After"),
        make("button.button.small", "Remove", data_do=f"remove {at}",
             aria_label="Remove this step")])


def outcome_words(outcome: Item, draft: RuleFormDraft | None = None) -> list[str]:
    """Return what the hub's check of a draft says, line by line. In the form, fields have their
    labels, and what nobody has come to yet is not missed."""
    problems, labels = outcome["problems"], {}
    if problems and draft is not None and draft.way == "form":
        labels = {field["name"]: field["label"] for _, fields, _ in _groups(draft)
                  for field in fields}
        problems = [problem for problem in problems if problem["message"] != NEEDED
                    or draft.wrong({problem["field"]: NEEDED})]
        if not problems:
            return [BEGIN]
    if problems:
        return [f"{labels.get(problem['field'], problem['field'])}: {problem['message']}"
                if problem["field"] else problem["message"] for problem in problems]
    return [_match_words(outcome), *(sentence(step["sentence"]) for step in outcome["refused"])]


def _match_words(outcome: Item) -> str:
    of, targets, matching = outcome["rule"]["of"], outcome["targets"], outcome["matching"]
    if targets == 0:
        return "Applies to nothing at the moment."
    if outcome["basis"] == "grows":
        return (f"Applies to {targets_words(of, targets)}. A single moment cannot show a change "
                "over time: rehearse the rule.")
    if matching == 0:
        return (f"Condition met by none of {targets_words(of, targets)}"
                f"{LATER[outcome['basis']]}.")
    names = outcome["names"][:MOST_NAMED]
    more = matching - len(names)
    return (f"Condition met by {amount(matching)} of {targets_words(of, targets)}"
            f"{LATER[outcome['basis']]}: {', '.join(names)}"
            f"{f' and {amount(more)} more' if more > 0 else ''}.")
