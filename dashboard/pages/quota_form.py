"""The form of a quota, and what the hub's check of a draft says. From data alone."""

from collections.abc import Sequence
from typing import Any

from dash.development.base_component import Component
from msgspec import field

from gpudeck.markup import make

from .drafts import FormDraft, messages_by_field, number, number_text
from .field_elements import field_element
from .forms import Choices, Field, choice, text
from .item_lists import Item
from .quota_cards import meaning_words
from .words import amount, plural, sentence

MODES: Choices = (("observe", "observe: only show"),
                  ("warn", "warn: notify, too"),
                  ("act", "act: notify, then end"))
COUNTS: Choices = (("each", "separately for each owner"), ("together", "as one total"))
PERS: Choices = (("day", "per day"), ("week", "per week"))
PRIORITIES: Choices = (("0", "0: ended last"), ("1", "1"), ("2", "2"), ("3", "3"),
                       ("4", "4: ended first"))
SIZES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("B", 1))
SPANS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
USUAL_LADDER = ["tell", "tell", "end"]
AGAIN_S = 600
MOST_OVER = 10
LABELS = {"id": "Id", "subject": "Applies to", "count": "Counted per", "scope": "Scope",
          "gpus": "Max. GPUs", "mem_bytes": "Max. memory", "gpu_hours": "Max. GPU-hours",
          "max_age_s": "Max. task age", "mode": "Mode", "ladder": "Notification and end"}
FRESH: Item = {
    "id": "", "subject": "*", "scope": "fleet", "gpus": None, "mem_bytes": None,
    "gpu_hours": None, "max_age_s": None, "count": "each", "per": "day", "mode": "observe",
    "priority": 2, "because": "", "ladder": [
        {"do": "tell"}, {"do": "tell", "after_s": AGAIN_S}, {"do": "end", "after_s": AGAIN_S}]}


class QuotaFormDraft(FormDraft):
    """A quota that somebody writes. `generation`: its version that is edited; `quota`: what the
    fields began with."""

    generation: int | None = None
    quota: dict[str, Any] = field(default_factory=dict)

    @property
    def is_usual(self) -> bool:
        """Return whether its ladder is one the form can write: notified, notified again, ended.
        Another ladder is kept as it is."""
        return [step["do"] for step in (FRESH | self.quota)["ladder"]] == USUAL_LADDER

    def quota_now(self) -> Item:
        before = FRESH | self.quota
        before.pop("offline", None)  # `allow`, of before, is refused, and no field could mend it
        if not self.values:
            return before
        ladder = [{"do": "tell"}, {"do": "tell", "after_s": self.text("again")},
                  {"do": "end", "after_s": self.text("end")}]
        return {
            "id": self.text("id") if self.is_new else self.of, "subject": self.text("subject"),
            "count": self.text("count"), "scope": self.text("scope"), "gpus": self._number("gpus"),
            "mem_bytes": self.text("mem_bytes") or None, "gpu_hours": self._number("gpu_hours"),
            "per": self.text("per"), "max_age_s": self.text("max_age_s") or None,
            "mode": self.text("mode"), "priority": number(self.text("priority")),
            "because": self.text("because"),
            "ladder": ladder if self.is_usual else before["ladder"]}

    def _number(self, name: str) -> float | int | str | None:
        return number(self.text(name)) if self.text(name) else None


def in_units(value: float | None, units: Sequence[tuple[str, int]]) -> str:
    """Write a size or a span in its largest unit without a rest."""
    if value is None:
        return ""
    unit, size = next((row for row in units if value >= row[1] and value % row[1] == 0), units[-1])
    return f"{number_text(value / size)}{unit}"


def quota_fields(draft: QuotaFormDraft, problems: Sequence[Item]) -> Component:
    """Return the fields. They are filled once: what is typed stays."""
    wrong = draft.wrong(messages_by_field(problems))
    return make("div.quota-fields", [
        field_element("quota", row, wrong=wrong.get(row["name"], ""))
        for row in _fields(draft)], data_key=draft.of)


def _fields(draft: QuotaFormDraft) -> list[Field]:
    quota = FRESH | draft.quota
    numbers = {name: "" if quota[name] is None else number_text(quota[name])
             for name in ("gpus", "gpu_hours")}
    first = [text("id", "Id", "", "Lower-case letters, digits and dashes.", required="",
                  pattern=r"[a-z0-9][a-z0-9\-]{0,63}", maxlength="64", placeholder="everyone")]
    return [
        *(first if draft.is_new else []),
        text("subject", "Applies to", quota["subject"], "user:NAME, group:NAME, container:NAME, "
             "slurm:JOB, k8s:NAMESPACE, or * for everyone.", required=""),
        choice("count", "Counted per", COUNTS, quota["count"]),
        text("scope", "Scope", quota["scope"], "fleet, group:NAME, node:NAME or gpu:UUID.",
             required=""),
        text("gpus", "Max. GPUs", numbers["gpus"], "Empty: no limit.", inputMode="numeric",
             placeholder="4"),
        text("mem_bytes", "Max. memory", in_units(quota["mem_bytes"], SIZES), "Such as 40GiB.",
             placeholder="40GiB"),
        text("gpu_hours", "Max. GPU-hours", numbers["gpu_hours"], inputMode="decimal",
             placeholder="100"),
        choice("per", "GPU-hours are counted", PERS, quota["per"]),
        text("max_age_s", "Max. task age", in_units(quota["max_age_s"], SPANS),
             "Such as 12h or 7d.", placeholder="12h"),
        choice("mode", "Mode", MODES, quota["mode"]),
        *(_ladder_fields(quota) if draft.is_usual else []),
        choice("priority", "Priority", PRIORITIES, f"{quota['priority']}") | {
            "hint": "Decides whose tasks are ended first when several owners share one total."},
        text("because", "Reason", quota["because"], "Shown to the owners it applies to.",
             maxlength="400")]


def _ladder_fields(quota: Item) -> list[Field]:
    again, end = (in_units(step.get("after_s", AGAIN_S), SPANS) for step in quota["ladder"][1:])
    return [text("again", "Second notification after", again, "Only in mode warn or act.",
                 required=""),
            text("end", "End the task after another", end, "Only in mode act.", required="")]


def problem_words(problem: Item) -> str:
    name = problem["field"].partition("[")[0]
    label = f"{LABELS.get(name, name)}: " if name else ""
    return sentence(f"{label}{problem['message']}")


def check_words(outcome: Item, subject: str) -> list[str]:
    """Return what the hub's check of a draft says, line by line."""
    if outcome["problems"]:
        return [*map(problem_words, outcome["problems"])]
    over, holders = outcome["over"], outcome["holders"]
    if outcome["nodes"] == 0:
        now = "Matches no node: nothing has the name under “Scope”."
    elif over:
        now = f"{amount(len(over))} would be over now:"
    else:
        users = f" ({plural(holders, 'owner')} with usage)" if holders else ""
        now = f"No one would be over now{users}."
    return [meaning_words(subject, outcome["meaning"]), now, *map(_over_words, over[:MOST_OVER])]


def _over_words(balance: Item) -> str:
    offenders = balance["offenders"]
    if not offenders:
        return str(balance["sentence"])
    return (f"{balance['sentence']} ({plural(len(offenders), 'job')} would be ended, the first on "
            f"{offenders[0]['host']})")
