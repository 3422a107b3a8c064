"""The action that a rule or a quota wants for one target at this moment. Pure.

Intents of all sources are advanced by one service (dashboard/automation/service.py), on the ladder
that they share (gpudeck/contract/ladder.py), within the same brakes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gpudeck.contract import rungs
from gpudeck.contract.action_table import ON_RUNG
from gpudeck.contract.actions import Preview, Refusal, RefusalCode, RuleCondition
from gpudeck.contract.ladder import Do, LadderRung, OutcomeKind, So

from ..actions.lifecycle import CommandRecord

# `dry_run`: all is computed and nothing sent. `confirm`: harmful steps wait for a person.
IntentMode = Literal["dry_run", "confirm", "auto"]
WAITS = "waiting for a person to confirm it"

# Refusals that will not change within a minute; after all others the step is tried again.
LASTING: frozenset[RefusalCode] = frozenset((
    "schema", "signature", "node", "type", "rules", "pidns", "protected", "managed", "mps",
    "multi_process", "permission", "identity", "made_up", "changed", "too_many", "kept", "scope"))


@dataclass(frozen=True, slots=True)
class RequestedKeep:
    """A request of an owner to keep a task until then, in UTC."""

    until: float
    sentence: str


@dataclass(frozen=True, slots=True)
class ActionIntent:
    """An action wanted now. `task_ids`: all tasks that it would act on; empty if its owner can only
    be notified. `sample_age_s`: of the oldest number that counts. Nothing that can hold it back has
    a default: what was not checked must not permit."""

    cause: str  # with its version
    source: str  # without its version: budgets are counted by it
    title: str
    target: str  # an identity that is never reused
    node_id: str
    host: str
    task_ids: tuple[str, ...]
    owner: str | None
    rungs: tuple[LadderRung, ...]
    mode: IntentMode
    condition_met: So
    sample_age_s: float | None
    since: float
    sentence: str  # the condition, for people
    acts: int  # at most so many `within_s`
    within_s: float
    holds: tuple[str, ...]
    mutes: tuple[str, ...]
    keep: RequestedKeep | None
    condition: RuleCondition | None  # that the node checks for itself
    alert_id: str = ""
    place: str = ""  # the target without its episode; empty: `target` has none
    goes_on: bool = False  # its condition has been met ever since the hub started
    skips_refused: bool = False  # whether a refused rung is skipped

    @property
    def key(self) -> tuple[str, str]:
        return self.cause, self.target


Source = Callable[[], Iterable[ActionIntent]]


def asker_of(intent: ActionIntent) -> str:
    """Return the name of the intent in its commands."""
    return intent.cause.partition(" ")[2] or intent.cause


def outcome_of(record: CommandRecord) -> tuple[OutcomeKind, str] | None:
    """Return what became of a command; None: not known yet."""
    match record.state:
        case "done":
            return "done", record.step
        case "not_effective" if record.action == "notify":
            return "done", record.step  # no terminal was open; mail is sent separately
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
    """Return why all automatic actions have to stop after this command; None: they need not."""
    if record.asker.kind != "rule" or record.action == "notify":
        return None
    whose = "a GPU" if record.task_id is None else f"task {record.task_id}"
    what = f"{record.asker.name}: the {record.action} of {whose} on {record.host}"
    if record.state == "unknown":
        return f"{what} has an unknown outcome"
    if record.verified is not None and record.verified.bystanders_alive is False:
        vanished = ", ".join(record.verified.vanished)
        return f"{what} took bystanders with it ({vanished or 'not known which'})"
    return None


def preview_flaw(intent: ActionIntent, do: Do, preview: Preview) -> Refusal | None:
    """Return how the node's preview differs from what is meant: it must hit all of it, and nothing
    else."""
    if preview.refusals:
        return preview.refusals[0]
    if do == "tell":
        return None
    tasks = {victim.task_id for victim in preview.victims if victim.task_id is not None}
    intended = frozenset(intent.task_ids)
    if intent.task_ids[0] not in tasks and tasks <= intended:
        return Refusal("gone", "the node's preview does not include this task")
    for refusal in rungs.by_tasks(ON_RUNG[do], intended, frozenset(tasks)):
        return refusal
    users = {victim.user for victim in preview.victims}
    if intent.owner is not None and users != {intent.owner}:
        strangers = ", ".join(sorted(
            user or "somebody unknown" for user in users - {intent.owner}))
        return Refusal("scope",
                       f"processes of it belong to {strangers}, and {intent.owner} is meant")
    return None
