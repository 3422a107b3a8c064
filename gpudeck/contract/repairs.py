"""GPUs out of service and their way back: the states of a repair, and the events between them.
Pure.

Without Kubernetes nobody cordons a GPU. Here its node does, so that a hub that is away, or was
restarted, places nothing on what is under repair. A record is for one board, or for a whole node.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from gpudeck.contract.message_limits import Seconds, Text, Word

WHOLE_NODE = "*"  # in place of a GPU's UUID
MAX_REPAIRS = 256
WORDS_MOST = 1_024

RepairState = Literal["cordoned", "draining", "drained", "resetting", "diagnosing",
                      "needs_reboot", "needs_inspection"]
ServiceState = Literal["in_service", RepairState]
RepairEvent = Literal[
    # requested
    "cordon", "drain", "reset", "diagnose", "return",
    # observed
    "emptied", "used", "reset_worked", "not_reset", "reset_failed", "worn_out", "passed",
    "not_judged", "failed", "cut_short", "rebooted",
]
# The picture in docs/repair.md is drawn from this. No other transition exists.
LIFE: Mapping[ServiceState, Mapping[RepairEvent, ServiceState]] = {
    "in_service": {"cordon": "cordoned", "drain": "draining"},
    "cordoned": {"drain": "draining", "reset": "resetting", "diagnose": "diagnosing",
                 "return": "in_service"},
    "draining": {"emptied": "drained", "cordon": "cordoned", "return": "in_service"},
    "drained": {"used": "draining", "cordon": "cordoned", "reset": "resetting",
                "diagnose": "diagnosing", "return": "in_service"},
    "resetting": {"reset_worked": "drained", "not_reset": "cordoned",
                  "reset_failed": "needs_reboot", "worn_out": "needs_inspection",
                  "cut_short": "needs_inspection"},
    "diagnosing": {"passed": "drained", "not_judged": "cordoned", "failed": "needs_inspection",
                   "cut_short": "cordoned"},
    "needs_reboot": {"rebooted": "cordoned", "diagnose": "diagnosing", "return": "in_service"},
    "needs_inspection": {"diagnose": "diagnosing", "return": "in_service"},
}
WORDS: Mapping[ServiceState, str] = {
    "in_service": "in service", "cordoned": "cordoned", "draining": "draining",
    "drained": "drained", "resetting": "being reset", "diagnosing": "being diagnosed",
    "needs_reboot": "needs a reboot", "needs_inspection": "needs inspection",
}
ASKED_FOR: tuple[RepairEvent, ...] = ("cordon", "drain", "reset", "diagnose", "return")
# One of these at a time on a node: they disturb all readers of its GPUs.
AT_WORK: tuple[ServiceState, ...] = ("resetting", "diagnosing")


class GpuRepair(Struct, frozen=True):
    """A board, or with WHOLE_NODE every board of its node, that gets no new work."""

    gpu_uuid: Word
    state: RepairState
    by: Word
    reason: Text
    began_at: Seconds  # when it went out of service
    since: Seconds  # when this state began
    boot_id: Word
    until: Seconds | None = None  # of a drain: when its time is over
    words: Text = ""  # the last observation

    @property
    def sentence(self) -> str:
        """Reason, for people, that nothing new is placed there."""
        where = "the node is " if self.gpu_uuid == WHOLE_NODE else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{where}{WORDS[self.state]}, by {self.by}{why}"[:WORDS_MOST]


class RepairsNow(Struct, frozen=True, tag="repairs_now"):
    """Repairs of a Node, sent when they change and at each connection."""

    taken_at: Seconds
    repairs: Annotated[tuple[GpuRepair, ...], Meta(max_length=MAX_REPAIRS)] = ()
    trouble: Text = ""  # why it is not known


def state_of(repair: GpuRepair | None) -> ServiceState:
    return "in_service" if repair is None else repair.state


def why_not(repair: GpuRepair | None, event: RepairEvent) -> str:
    """Return why the event cannot follow; "": it can."""
    state = state_of(repair)
    if event in LIFE[state]:
        return ""
    if event == "return" and repair is None:
        return "it is in service"
    may = [other for other in LIFE[state] if other in ASKED_FOR]
    return (f"it is {WORDS[state]}, and cannot be {_PARTICIPLES.get(event, event)} now"
            + (f"; what can follow: {', '.join(may)}" if may else "; wait until that has ended"))


_PARTICIPLES: Mapping[RepairEvent, str] = {
    "cordon": "cordoned", "drain": "drained", "reset": "reset", "diagnose": "diagnosed",
    "return": "returned"}


def after(repair: GpuRepair, event: RepairEvent, now: float, words: str = "") -> GpuRepair | None:
    """Return the repair after an event; None: back in service. Raises KeyError where it cannot
    follow."""
    state = LIFE[repair.state][event]
    if state == "in_service":
        return None
    until = repair.until if state == repair.state else None
    return replace(repair, state=state, since=now, until=until, words=words[:WORDS_MOST])


def observe(repair: GpuRepair, is_used: bool | None, boot_id: str, now: float) -> GpuRepair | None:
    """Return the repair that follows from an observation of its node; None: no change. `is_used`
    None: not known."""
    if repair.state == "needs_reboot" and boot_id != repair.boot_id:
        return after(repair, "rebooted", now, "the node was rebooted since")
    if repair.state == "draining" and is_used is False:
        return after(repair, "emptied", now, "no task is left on it")
    if repair.state == "drained" and is_used is True:
        return after(repair, "used", now, "a task has come since, without a lease")
    return None


def of_gpu(repairs: Iterable[GpuRepair], board_uuid: str) -> GpuRepair | None:
    """Return the GPU's repair: its own before that of its whole node."""
    by_uuid = {repair.gpu_uuid: repair for repair in repairs}
    return by_uuid.get(board_uuid) or by_uuid.get(WHOLE_NODE)


def overdue(repair: GpuRepair, now: float) -> bool:
    return repair.state == "draining" and repair.until is not None and now >= repair.until
