"""Messages between agent and hub about actions on tasks: preview, command, reply.

A Preview is made by the agent from a fresh reading of its own, and signed by the node's key. A
Command carries the whole Preview back, signed by the hub's signer. So a person confirms exactly
what the agent will compare with, and no hub, whoever runs it, can name a victim that the agent has
not shown.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gpudeck.contract.action_table import (
    CHECKPOINT_MOST_S,
    GRACE_LEAST_S,
    GRACE_MOST_S,
    GRACE_S,
    Action,
    ShownAction,
)
from gpudeck.contract.limits import Setting, SettingChange
from gpudeck.contract.message_limits import (
    Amount,
    CommandLine,
    Nonce,
    Number,
    Pid,
    PublicKey,
    Seconds,
    Text,
    Word,
)

MAX_VICTIMS = 512
MAX_BYSTANDERS = 256
PREVIEW_LASTS_S = 60.0
COMMAND_LASTS_S = 30.0
YOUNGEST_S = 5.0
UNKILLABLE_AFTER_S = 60.0
MEMORY_BACK_WITHIN_S = 30.0
MEMORY_BACK_SHARE = 0.8
SKEW_MAX_S = 5.0
CLOCK_KNOWN_FOR_S = 300.0
# In Beat.holds: tells the hub that its own order is in force, whatever hold files there are.
HELD_BY_HUB = "the hub, by "

NO_TASK = "-"  # instead of a task id, for a setting

CommandState = Literal["requested", "refused", "queued", "sent", "accepted", "acting", "done",
                       "not_effective", "unkillable", "expired", "unknown"]
# Possible next states; the picture in docs/actions.md is drawn from this. A state that nothing
# follows is an outcome. `unknown` may still be settled: by the node's report when it is back.
LIFE: dict[CommandState, tuple[CommandState, ...]] = {
    "requested": ("refused", "queued"),
    "queued": ("sent", "refused", "expired"),
    "sent": ("accepted", "refused", "expired", "unknown"),
    "accepted": ("acting", "refused", "expired", "unknown"),
    "acting": ("done", "not_effective", "unkillable", "refused", "unknown"),
    "unknown": ("done", "not_effective", "unkillable", "refused", "expired"),
    "refused": (), "done": (), "not_effective": (), "unkillable": (), "expired": (),
}
FINAL: frozenset[CommandState] = frozenset(
    state for state, after in LIFE.items() if not after) | {"unknown"}

# The closed set of reasons; the sentence beside a code is for people.
RefusalCode = Literal[
    # from the agent before anything is touched, in this order
    "schema", "signature", "node", "epoch", "skew", "expired", "duplicate", "type", "budget",
    "rules", "hold", "pidns", "protected", "managed", "mps", "multi_process", "permission",
    "journal", "busy", "setting",
    # from the agent after a fresh reading
    "gone", "young", "identity", "condition", "made_up", "unreadable",
    # from the hub or its signer before anything is sent
    "offline", "fence", "stale_preview", "changed", "too_many", "second_person", "kept", "scope",
    "audit", "signer",
]


class Refusal(Struct, frozen=True):
    code: RefusalCode
    sentence: Text


class ActionParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of an action. An action ignores those that it does not use."""

    # from SIGTERM to SIGKILL
    grace_s: Annotated[float, Meta(ge=GRACE_LEAST_S, le=GRACE_MOST_S)] = GRACE_S
    checkpoint_signal: Literal["USR1", "USR2", "INT", "HUP"] | None = None  # before SIGTERM
    checkpoint_wait_s: Annotated[float, Meta(ge=0, le=CHECKPOINT_MOST_S)] = 0.0
    text: Text = ""  # of a notify
    # Wait for its next checkpoint, before anything is touched; older hubs leave it unset.
    checkpoint_within_s: Annotated[float, Meta(ge=0, le=CHECKPOINT_MOST_S)] | UnsetType = UNSET
    setting: Setting | None = None  # of an action on MPS or a GPU, and of nothing else


class ProcessIdentity(Struct, frozen=True):
    """A process, identified by what is never reused. None: this kernel, or our rights, do not
    tell."""

    pid: Pid
    start_ticks: Number
    uid: Number
    executable: Word | None  # device:inode
    cgroup: Text | None
    pidfs_inode: Number | None  # kernel 6.9 and later


class HeldGpu(Struct, frozen=True):
    gpu_uuid: Word
    mem_used_bytes: Amount | None


class Victim(Struct, frozen=True):
    process: ProcessIdentity
    command: CommandLine | None
    user: Word | None
    task_id: Word | None = None  # of a process that uses a GPU
    held: Annotated[tuple[HeldGpu, ...], Meta(max_length=256)] = ()


class Bystander(Struct, frozen=True):
    """Another Task on one of the victims' GPUs; it must be alive afterwards."""

    process: ProcessIdentity
    task_id: Word
    user: Word | None
    command: CommandLine | None
    held: Annotated[tuple[HeldGpu, ...], Meta(max_length=256)] = ()


def total(parts: Iterable[float | None]) -> float | None:
    """Add up the parts. None where any part is not known: a sum of the rest would be a wrong
    number."""
    amounts = [*parts]
    numbers = [part for part in amounts if part is not None]
    return sum(numbers) if numbers and len(numbers) == len(amounts) else None


class Preview(Struct, frozen=True, tag="preview"):
    """The processes that an action would hit, as the agent sees them now. With refusals: it would
    not be done."""

    ask_id: Word
    nonce: Nonce  # of the signer, from the preview's request
    node_id: Word
    boot_id: Word
    taken_at: Seconds
    action: ShownAction
    params: ActionParams
    task_id: Word  # the requested one
    job_id: Word | None  # of the tasks that stand or fall together with it
    owner: Word | None
    age_s: Amount | None
    kind: Word | None
    manager: Text | None
    victims: Annotated[tuple[Victim, ...], Meta(max_length=MAX_VICTIMS)]
    bystanders: Annotated[tuple[Bystander, ...], Meta(max_length=MAX_BYSTANDERS)]
    refusals: Annotated[tuple[Refusal, ...], Meta(max_length=32)] = ()
    warnings: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()  # of lasting effects, …
    key: PublicKey = bytes(32)
    signature: Annotated[bytes, Meta(max_length=64)] = b""  # empty while it is not signed yet
    changes: Annotated[tuple[SettingChange, ...], Meta(max_length=64)] = ()  # of a setting


AskerKind = Literal["person", "program", "rule", "terminal"]


class CommandActor(Struct, frozen=True):
    """The Actor, as the node records them."""

    kind: AskerKind
    name: Word
    approved_by: Word | None = None  # the second person


class MetricBound(Struct, frozen=True):
    """A comparison of one value that an agent can observe of a Task by itself."""

    name: Literal["sm_pct", "busy_pct", "mem_used_bytes", "age_s"]
    op: Literal["<", "<=", ">", ">=", "=", "!="]
    number: Amount


class RuleCondition(Struct, frozen=True):
    """The condition under which a Rule acts on a Task, as far as its node can check it: it must
    hold in each of two samples taken after the command."""

    bounds: Annotated[tuple[MetricBound, ...], Meta(max_length=8)] = ()
    text: Text = ""  # the whole condition, for people


class Command(Struct, frozen=True, omit_defaults=True):
    """The body that is signed. Times are the hub's."""

    command_id: Word
    node_id: Word
    epoch: Number
    issued_at: Seconds
    expires_at: Seconds
    nonce: Nonce
    action: Action
    asker: CommandActor
    reason: Text
    preview: Preview | None  # None: of a hold or a release
    condition: RuleCondition | None = None  # None: a person has confirmed the preview


class Recall(Struct, frozen=True, tag="recall"):
    """Stop whatever part of this Command has not been done yet. It can only stop, so it is not
    signed."""

    command_id: Word
    why: Text


class ActionVerification(Struct, frozen=True):
    """Observations after an action, each made separately. None: could not be observed."""

    exited: bool | None = None
    memory_returned: bool | None = None
    bystanders_alive: bool | None = None
    mem_before_bytes: Amount | None = None  # what the victims held
    mem_after_bytes: Amount | None = None  # what of it did not come back
    vanished: Annotated[tuple[Word, ...], Meta(max_length=MAX_BYSTANDERS)] = ()  # task ids
    survivors: Annotated[tuple[Pid, ...], Meta(max_length=MAX_VICTIMS)] = ()
    # Of a setting: it was accepted without an error; it was read back as wanted.
    applied: bool | None = None
    in_force: bool | None = None
    checkpoint_at: Seconds | UnsetType = UNSET  # end of the checkpoint that was waited for


class Reply(Struct, frozen=True, tag="reply"):
    """The agent's report on a Command; `number` grows, so that the newest one counts. Repeated
    until it is Noted."""

    command_id: Word
    number: Annotated[int, Meta(ge=1, le=2**53)]
    state: CommandState
    at: Seconds
    step: Text = ""  # what happens right now, for people
    refusal: Refusal | None = None
    verified: ActionVerification | None = None
    audit_seq: Number = 0
    audit_head: Text = ""
