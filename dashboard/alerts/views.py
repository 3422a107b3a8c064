"""Rules, alerts and silences, as the API and the pages show them. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gpudeck.action_table import ON_RUNG
from gpudeck.ladder import Do
from gpudeck.rungs import RungTarget, out_of_place, refusal

from .core.firing_alerts import Alert, AlertTarget
from .core.momentary_rule import Basis
from .core.rule import Mode, Of, Rule, Severity
from .core.rule_tracker import RuleTracker
from .core.silence import Silence
from .core.state_machine import AlertPhase, EvaluationHealth

Text = Annotated[str, Meta(max_length=400)]
Word = Annotated[str, Meta(max_length=1_024)]


class CompletedStepView(Struct):
    do: str
    at: float
    ended_at: float | None
    outcome: str | None
    sentence: str


class RungView(Struct):
    do: str
    after_s: float


class LadderView(Struct):
    """`next`: what comes, at the earliest at `due_at`; `confirm`: as soon as a person lets it."""

    mode: str
    state: str
    next: str | None
    due_at: float | None
    why: str
    confirm: bool
    task_ids: list[str]
    rungs: list[RungView]
    done: list[CompletedStepView]


AlertDetail = tuple[list[str], LadderView | None]  # what holds its actions; its ladder


class AlertView(Struct):
    """`gpus`: where it is marked, as far as one may see them; of a Node and of the fleet empty, as
    it is about all of theirs."""

    id: str
    rule: str
    title: str
    severity: Severity
    of: Of
    target: str
    node: str
    host: str
    place: str
    users: list[str]
    gpus: list[str]
    state: Literal["pending", "firing", "resolving", "ended"]
    since: float
    fired_at: float
    changed_at: float
    ended_at: float | None
    value: float | None
    comebacks: int
    why: str
    holds: list[str]
    silenced_by: list[str]
    ladder: LadderView | None = None


class AlertList(Struct):
    items: list[AlertView]
    next: str | None = None


class RuleProblemView(Struct):
    field: str
    message: str
    at: int | None


class RuleView(Struct):
    """`phases`: how many of its targets are in each; `cannot`: for how many it is unknown.
    `warning`: as in the check of a rule, after it was put."""

    rule: Rule
    number: int
    version: str
    mode: Mode
    is_watched: bool
    targets: int
    pending: int
    firing: int
    resolving: int
    no_data: int
    cannot: int
    why_not: str
    warning: str = ""


class RuleList(Struct):
    """`proof_h`: hours of dry run, or of history in a rehearsal, that `auto` takes here."""

    items: list[RuleView]
    proof_h: int


class RuleDraft(Struct, forbid_unknown_fields=True):
    """As it is being written, as fields or as YAML: anything may be wrong with it. `is_new`: it
    must not take the place of another one."""

    rule: dict[str, Any] | None = None
    yaml: Annotated[str, Meta(max_length=20_000)] | None = None
    is_new: bool = False


class RungCheck(Struct):
    """A step of its ladder that would be refused now for `refused` of so many targets; without any,
    of the nodes themselves. Both are 0 for a step that no target ever allows."""

    step: int
    do: str
    refused: int
    targets: int
    sentence: str


class RuleCheck(Struct):
    """`matches`: whom its condition is true of at this moment, without any hold; at most 100, and
    `names` of these, as people call them. `rule` and `yaml`: the same both ways, as far as it can
    be read. `basis`: by what; of a rule that looks back over a span by the `newest` samples alone,
    and of what `grows` over one nothing can be said of one moment. `refused`: what of its ladder
    could not be done. `warning`: it is valid, and would never fire as the fleet is now."""

    problems: list[RuleProblemView]
    targets: int = 0
    matching: int = 0
    matches: list[str] = []
    names: list[str] = []
    rule: Rule | None = None
    yaml: str = ""
    basis: Basis = "now"
    refused: list[RungCheck] = []
    warning: str = ""


class NewSilence(Struct, forbid_unknown_fields=True):
    until: float
    because: Annotated[str, Meta(min_length=1, max_length=400)]
    rule: Word = ""
    node: Word = ""
    target: Word = ""
    user: Word = ""
    begins: float | None = None


class SilenceView(Struct):
    id: str
    by: str
    because: str
    begins: float
    until: float
    rule: str
    node: str
    host: str  # of that node, where it is known
    target: str
    user: str
    is_on: bool
    ended_at: float | None


class SilenceList(Struct):
    items: list[SilenceView]


def alert_view(alert: Alert, gpus: list[str], silenced_by: list[str], holds: list[str],
               ladder: LadderView | None = None) -> AlertView:
    target = alert.target
    return AlertView(
        alert.id, alert.rule_id, alert.title, alert.severity, alert.of, target.key, target.node_id,
        target.host, target.place, [*target.users], gpus, alert.state, alert.since, alert.fired_at,
        alert.changed_at, alert.ended_at, alert.value, alert.comebacks, alert.why, holds,
        silenced_by, ladder)


def rule_view(rule: Rule, number: int, version: str, watch: RuleTracker | None, why_not: str
              ) -> RuleView:
    if watch is None or not len(watch.seen.scope):
        return RuleView(rule, number, version, rule.mode, watch is not None, 0, 0, 0, 0, 0, 0,
                        why_not)
    size = len(watch.seen.scope)
    phase, health = watch.machine.phase[:size], watch.machine.health[:size]
    meant = watch.seen.scope
    return RuleView(
        rule, number, version, rule.mode, True, int(meant.sum()),
        int((phase == AlertPhase.PENDING).sum()), int((phase == AlertPhase.FIRING).sum()),
        int((phase == AlertPhase.RESOLVING).sum()),
        int((meant & (health == EvaluationHealth.NO_DATA)).sum()),
        int((meant & (health == EvaluationHealth.CANNOT)).sum()), why_not)


def rung_checks(dos: Sequence[Do], targets: Sequence[RungTarget], noun: str) -> list[RungCheck]:
    """The steps of a ladder that would be refused, each in the words of the node or the hub."""
    never = dict(out_of_place(dos))
    found = []
    for step, do in enumerate(dos):
        said = f"step {step + 1} ('{do}')"
        whys = Counter(why.sentence for of in targets
                       if (why := refusal(ON_RUNG[do], of)) is not None)
        if step in never:
            found.append(RungCheck(step, do, 0, 0, f"{said} can never be done: {never[step]}"))
        elif whys:
            refused, of = whys.total(), len(targets)
            whom = f"all {of}" if refused == of else f"{refused} of {of}"
            found.append(RungCheck(step, do, refused, of, f"{said} would be refused now for {whom} "
                                   f"{noun}s: {whys.most_common(1)[0][0]}"))
    return found


def name_of(of: Of, target: AlertTarget) -> str:
    """As people call it."""
    place = f"GPU {target.place}" if target.place else ""
    words = [word for word in (target.host, place) if word]
    if of in ("task", "job"):
        words += [*target.users[:3]]
    return " · ".join(words) or target.key


def silence_view(silence: Silence, host: str, now: float) -> SilenceView:
    return SilenceView(
        silence.id, silence.by, silence.because, silence.begins, silence.until, silence.rule,
        silence.node, host, silence.target, silence.user, silence.is_on(now), silence.ended_at)
