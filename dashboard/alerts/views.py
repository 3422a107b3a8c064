"""Rules, alerts and silences, as the API and the pages show them. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.ladder import Do
from gpudeck.contract.rungs import RungTarget, out_of_place, refusal

from .core.firing_alerts import Alert, AlertTarget
from .core.momentary_rule import Basis
from .core.rule import CompiledRule, Mode, Of, Rule, Severity
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
    """Progress of an alert's ladder. `next`: the next step, at the earliest at `due_at`; `confirm`:
    it waits for a person to confirm it."""

    mode: str
    state: str
    next: str | None
    due_at: float | None
    why: str
    confirm: bool
    task_ids: list[str]
    rungs: list[RungView]
    done: list[CompletedStepView]


class AlertDetail(Struct, frozen=True):
    """Reasons why nothing is done about an alert now, ids of its inhibitors, and its ladder."""

    holds: list[str]
    inhibited_by: list[str] = []
    ladder: LadderView | None = None


NO_DETAIL = AlertDetail([])


class AlertView(Struct):
    """`gpus`: GPUs on which the alert is marked, without those hidden from the caller; empty for a
    Node and for the fleet, as the alert is about all of theirs. `inhibited_by`: ids of the alerts
    that inhibit it now; empty unless it is firing."""

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
    inhibited_by: list[str]
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
    `warning`: as in the check of a rule, after it was put. `unit`: of its signal, as the metrics in
    it are defined; null: it has no name, such as `W/%`. `fires_at`: its limit in that unit."""

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
    unit: str | None = None
    fires_at: float | None = None


class RuleList(Struct):
    """`proof_h`: hours of dry run, or of rehearsed history, that this site requires before
    `auto`."""

    items: list[RuleView]
    proof_h: int


class RuleModeChange(Struct, forbid_unknown_fields=True):
    """`expires`: for auto, the last day on which it acts, such as 2027-01-31."""

    mode: Mode
    expires: Annotated[str, Meta(max_length=10)] | None = None


class RuleDraft(Struct, forbid_unknown_fields=True):
    """A rule being written, as fields or as YAML; it may hold any mistake. `is_new`: it must not
    replace an existing rule."""

    rule: dict[str, Any] | None = None
    yaml: Annotated[str, Meta(max_length=20_000)] | None = None
    is_new: bool = False


class RungCheck(Struct):
    """A step of the ladder that would be refused now for `refused` of `targets` targets, or of
    nodes if the rule has no targets now. Both are 0 for a step that no target ever allows."""

    step: int
    do: str
    refused: int
    targets: int
    sentence: str


class RuleCheck(Struct):
    """`matches`: targets that meet the condition now, without waiting for its hold; at most 100,
    with their display names in `names`. `rule` and `yaml`: the same rule both ways, as far as it
    can be read. `basis`: by which values; a rule that looks back over a span is checked by its
    newest samples alone (`newest`), and one moment says nothing about a value that `grows` over a
    span. `refused`: steps of its ladder that could not be done. `warning`: the rule is valid, but
    would never fire in the fleet as it is now."""

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
    host: str  # of that node, if known
    target: str
    user: str
    is_on: bool
    ended_at: float | None


class SilenceList(Struct):
    items: list[SilenceView]


def alert_view(alert: Alert, gpus: list[str], silenced_by: list[str], detail: AlertDetail
               ) -> AlertView:
    target = alert.target
    return AlertView(
        alert.id, alert.rule_id, alert.title, alert.severity, alert.of, target.key, target.node_id,
        target.host, target.place, [*target.users], gpus, alert.state, alert.since, alert.fired_at,
        alert.changed_at, alert.ended_at, alert.value, alert.comebacks, alert.why, detail.holds,
        silenced_by, detail.inhibited_by, detail.ladder)


def rule_view(rule: Rule, number: int, ready: CompiledRule | None, watch: RuleTracker | None,
              why_not: str) -> RuleView:
    """Return the view. `ready`: None for a rule that cannot be read."""
    version, unit, fires_at = ("", None, None) if ready is None else (
        ready.version, ready.signal.part.unit, ready.fire.number)
    if watch is None or not len(watch.last_values.scope):
        return RuleView(rule, number, version, rule.mode, watch is not None, 0, 0, 0, 0, 0, 0,
                        why_not, unit=unit, fires_at=fires_at)
    size = len(watch.last_values.scope)
    phase, health = watch.machine.phase[:size], watch.machine.health[:size]
    in_scope = watch.last_values.scope
    return RuleView(
        rule, number, version, rule.mode, True, int(in_scope.sum()),
        int((phase == AlertPhase.PENDING).sum()), int((phase == AlertPhase.FIRING).sum()),
        int((phase == AlertPhase.RESOLVING).sum()),
        int((in_scope & (health == EvaluationHealth.NO_DATA)).sum()),
        int((in_scope & (health == EvaluationHealth.CANNOT)).sum()), why_not, unit=unit,
        fires_at=fires_at)


def rung_checks(dos: Sequence[Do], targets: Sequence[RungTarget], noun: str) -> list[RungCheck]:
    """Return the steps of a ladder that would be refused, with the reason as the node or the hub
    states it."""
    never = dict(out_of_place(dos))
    checks = []
    for step, do in enumerate(dos):
        label = f"step {step + 1} ('{do}')"
        whys = Counter(why.sentence for target in targets
                       if (why := refusal(ON_RUNG[do], target)) is not None)
        if step in never:
            checks.append(RungCheck(step, do, 0, 0, f"{label} can never be done: {never[step]}"))
        elif whys:
            refused, total = whys.total(), len(targets)
            share = f"all {total}" if refused == total else f"{refused} of {total}"
            checks.append(RungCheck(step, do, refused, total, f"{label} would be refused now for "
                                    f"{share} {noun}s: {whys.most_common(1)[0][0]}"))
    return checks


def name_of(of: Of, target: AlertTarget) -> str:
    """Return the display name of a target."""
    place = f"GPU {target.place}" if target.place else ""
    words = [word for word in (target.host, place) if word]
    if of in ("task", "job"):
        words += [*target.users[:3]]
    return " · ".join(words) or target.key


def silence_view(silence: Silence, host: str, now: float) -> SilenceView:
    return SilenceView(
        silence.id, silence.by, silence.because, silence.begins, silence.until, silence.rule,
        silence.node, host, silence.target, silence.user, silence.is_on(now), silence.ended_at)
