"""Sentences about a command: one place, so that pages, terminal and audit log say the same.
Pure."""

from typing import Protocol

from gpudeck.contract.action_table import ROWS, Action
from gpudeck.contract.actions import ActionVerification, CommandState, Refusal

OPEN = {
    "requested": "Requested; waiting for the signer.",
    "queued": "Signed; it is sent when the node is connected.",
    "sent": "Sent to the node; it has not answered yet.",
    "accepted": "The node has accepted it and checks once more before acting.",
}


class CommandStatus(Protocol):
    """A command, as far as people are shown it."""

    @property
    def action(self) -> Action: ...
    @property
    def state(self) -> CommandState: ...
    @property
    def step(self) -> str: ...
    @property
    def bystanders(self) -> int | None: ...  # in the preview; None: not known
    @property
    def refusal(self) -> Refusal | None: ...
    @property
    def verified(self) -> ActionVerification | None: ...


def sentence(record: CommandStatus) -> str:
    """Return one or a few short sentences, the outcome first."""
    match record.state:
        case "acting":
            return f"The node is {ROWS[record.action].doing}" + (
                f": {record.step}." if record.step else " now.")
        case "refused":
            why = record.refusal.sentence if record.refusal else "the node gave no reason"
            return f"Refused, nothing was done: {why.rstrip('.')}."
        case "done":
            return _done_words(record)
        case "not_effective":
            return _not_effective(record)
        case "unkillable":
            return ("It was killed and is still there: it waits inside the kernel, usually for "
                    "a driver or a disk, where no signal reaches it. Nothing more is sent; the "
                    "node may need a reboot." + _about(record))
        case "expired":
            return ("Expired, nothing was done: " + (record.step.rstrip(".") or (
                "it did not reach the node in time")) + ".")
        case "unknown":
            return ("Unknown: the node has not reported the outcome. It may or may not have been "
                    "done, and it is not sent again; check the task itself. The hub asks the node "
                    "whenever it is connected.")
        case state:
            return OPEN[state]


def ranks_left(action: Action, elsewhere: int, nodes: int, here: int) -> list[str]:
    """Say what becomes of the other ranks of a launch when some are ended or paused: an action
    stays on its node."""
    becomes = ROWS[action].ranks_left
    if not becomes:
        return []
    sentences = []
    if elsewhere:
        sentences.append(
            f"{_ranks(elsewhere)} on {nodes} other node{'s' if nodes > 1 else ''} "
            f"{'are' if elsewhere > 1 else 'is'} part of the same launch and {becomes}.")
    if here:
        sentences.append(
            f"{_ranks(here)} more on this node {'are' if here > 1 else 'is'} part of the "
            f"same launch and {becomes}.")
    return sentences


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count > 1 else ''}"


def _done_words(record: CommandStatus) -> str:
    row = ROWS[record.action]
    match row.proof:
        case "read_back":
            return _settled(record)
        case "step":
            return row.done + _step(record)
        case "neighbours":
            return row.done + _bystanders(record)
        case "exit":
            return row.done + _about(record, is_gone_said=True)
    return row.done


def _step(record: CommandStatus) -> str:
    return f": {record.step.rstrip('.')}." if record.step else "."


def _settled(record: CommandStatus) -> str:
    """Describe a setting: whether it is in force is said only where it was read."""
    verified = record.verified
    is_read = verified is not None and verified.in_force is True
    return (f"{ROWS[record.action].ended.capitalize()}"
            f"{', and in force' if is_read else '; whether it is in force cannot be read'}"
            + _step(record) + _bystanders(record))


def _not_effective(record: CommandStatus) -> str:
    verified = record.verified
    if verified is not None and verified.in_force is False:
        return (f"{'Applied, not in force' if verified.applied else 'Not applied'}: "
                f"{record.step.removeprefix('applied, not in force: ').rstrip('.')}."
                + _bystanders(record))
    row = ROWS[record.action]
    if row.proof != "exit" or verified is None:
        return (f"{row.subject} was not {row.ended}, though the node tried" + _step(record)
                + _about(record))
    if verified.exited and verified.memory_returned is False:
        return ("Its processes are gone, but their memory has not been freed: the driver or "
                "another process still holds it." + _about(record, is_gone_said=True))
    if verified.exited is False:
        pids = ", ".join(map(str, verified.survivors[:5]))
        return ("It is still running" + (f" (pid {pids})" if pids else "") + "."
                + _about(record, is_gone_said=True))
    return "The node could not verify that it ended." + _about(record)


def _about(record: CommandStatus, is_gone_said: bool = False) -> str:
    """Describe each observation after the action separately."""
    verified = record.verified
    if verified is None:
        return ""
    sentences = []
    if not is_gone_said and verified.exited is not None:
        sentences.append(
            "Its processes are gone." if verified.exited else "Its processes are there.")
    sentences.append(_memory(verified))
    return "".join(f" {part}" for part in sentences if part) + _bystanders(record)


def _memory(verified: ActionVerification) -> str:
    before, after = verified.mem_before_bytes, verified.mem_after_bytes
    if verified.memory_returned is None:
        return "Whether its memory was freed is not known."
    if verified.memory_returned:
        return "Its memory was freed" + ("." if before is None else f" ({_bytes(before)}).")
    if before is None or after is None:
        return "Not all of its memory was freed."
    return f"{_bytes(after)} of its {_bytes(before)} did not come back."


def _bystanders(record: CommandStatus) -> str:
    verified = record.verified
    if verified is None or (record.bystanders == 0 and not verified.vanished):
        return ""
    if verified.bystanders_alive is None:
        return " Whether other tasks on its GPUs are unaffected is not known."
    if verified.bystanders_alive:
        return " Other tasks on its GPUs are unaffected."
    count = len(verified.vanished)
    return (f" {count} other task{'s' if count != 1 else ''} on its GPUs vanished in the same "
            "moment: look at them.")


def _bytes(number: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1024:.0f} KiB"
