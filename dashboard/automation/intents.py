"""The action that a Rule or a Quota wants for one target at this moment. Pure.

Whatever comes out of a source is stepped by one service (dashboard/automation/service.py), by the
ladder that all share (gpudeck/ladder.py), within the same brakes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gpudeck import rungs
from gpudeck.action_table import ON_RUNG
from gpudeck.actions import Preview, Refusal, RefusalCode, RuleCondition
from gpudeck.ladder import Do, LadderRung, OutcomeKind, So

from ..actions.lifecycle import CommandRecord

# `dry_run`: all is computed and nothing sent. `confirm`: what harms waits for a person.
IntentMode = Literal["dry_run", "confirm", "auto"]
WAITS = "waiting for a person to confirm it"

# These will not be different in a minute; of all others it is tried again.
LASTING: frozenset[RefusalCode] = frozenset((
    "schema", "signature", "node", "type", "rules", "pidns", "protected", "managed", "mps",
    "multi_process", "permission", "identity", "made_up", "changed", "too_many", "kept", "scope"))


@dataclass(frozen=True, slots=True)
class RequestedKeep:
    """An owner asked that a task be kept until then, in UTC."""

    until: float
    sentence: str


@dataclass(frozen=True, slots=True)
class ActionIntent:
    """`task_ids`: of what would be acted on, all of it; none: whoever is meant can only be told.
    `sample_age_s`: of the oldest number that counts. What holds it back has no default: what was
    not asked must not permit."""

    cause: str  # with its version
    source: str  # without: what budgets are counted by
    title: str
    target: str  # by what is never reused
    node_id: str
    host: str
    task_ids: tuple[str, ...]
    owner: str | None
    rungs: tuple[LadderRung, ...]
    mode: IntentMode
    so: So
    sample_age_s: float | None
    since: float
    sentence: str  # what is so, for people
    acts: int  # so many at most `within_s`
    within_s: float
    holds: tuple[str, ...]
    mutes: tuple[str, ...]
    keep: RequestedKeep | None
    condition: RuleCondition | None  # that its node is to look for itself
    alert_id: str = ""
    place: str = ""  # the target without its episode; without it, `target` is that
    goes_on: bool = False  # it has been so ever since the hub was started
    skips_refused: bool = False  # a rung that is refused

    @property
    def key(self) -> tuple[str, str]:
        return self.cause, self.target


Source = Callable[[], Iterable[ActionIntent]]


def asker_of(intent: ActionIntent) -> str:
    """As its commands name it."""
    return intent.cause.partition(" ")[2] or intent.cause


def outcome_of(record: CommandRecord) -> tuple[OutcomeKind, str] | None:
    """None: it is not known yet."""
    match record.state:
        case "done":
            return "done", record.step
        case "not_effective" if record.action == "notify":
            return "done", record.step  # no terminal was open; mail and notices go their own way
        case "expired":
            return "put_off", record.step or "it did not reach the node in time"
        case "refused":
            if record.refusal is None:
                return "refused", "the node refused it without a reason"
            is_lasting = record.refusal.code in LASTING
            return "refused" if is_lasting else "put_off", record.refusal.sentence
        case "not_effective" | "unkillable" | "unknown" if record.action == "notify":
            return "put_off", "the node has not reported whether the owner was notified"
        case "not_effective" | "unkillable" | "unknown":
            return "failed", f"the outcome is {record.state.replace('_', ' ')}: {record.step}"
        case _:
            return None


def alarm(record: CommandRecord) -> str | None:
    """Why all automatic acts have to stop after this one; None: they need not."""
    if record.asker.kind != "rule" or record.action == "notify":
        return None
    whose = "a GPU" if record.task_id is None else f"task {record.task_id}"
    what = f"{record.asker.name}: the {record.action} of {whose} on {record.host}"
    if record.state == "unknown":
        return f"{what} has an unknown outcome"
    if record.verified is not None and record.verified.bystanders_alive is False:
        gone = ", ".join(record.verified.vanished)
        return f"{what} took bystanders with it ({gone or 'not known which'})"
    return None


def preview_flaw(intent: ActionIntent, do: Do, preview: Preview) -> Refusal | None:
    """What its node would hit must be what is meant: all of it, and nothing beside it."""
    if preview.refusals:
        return preview.refusals[0]
    if do == "tell":
        return None
    tasks = {victim.task_id for victim in preview.victims if victim.task_id is not None}
    meant = frozenset(intent.task_ids)
    if intent.task_ids[0] not in tasks and tasks <= meant:
        return Refusal("gone", "the node's preview does not include this task")
    for refusal in rungs.by_tasks(ON_RUNG[do], meant, frozenset(tasks)):
        return refusal
    users = {victim.user for victim in preview.victims}
    if intent.owner is not None and users != {intent.owner}:
        others = ", ".join(sorted(user or "somebody unknown" for user in users - {intent.owner}))
        return Refusal("scope", f"processes of it belong to {others}, and {intent.owner} is meant")
    return None
