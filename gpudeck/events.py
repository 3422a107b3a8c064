"""What can happen on a Node: the one table of Events. Agents raise them, pages and rules read them.

`text` of an Event says what happened and what to do in this case; the advice here is for its kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpudeck.xid import UNKNOWN_CODE, explain

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class EventKind:
    key: str
    severity: Severity  # an Xid's own is in xid.py
    label: str
    advice: str


_TABLE: tuple[EventKind, ...] = (
    EventKind("agent_began", "info", "Agent began", ""),
    EventKind("node_began", "info", "Node started", ""),
    EventKind("clock_stepped", "warning", "Clock stepped",
              "check the node's time service: history of this moment may have a hole or an "
              "overlap"),
    EventKind("reader_hung", "critical", "Driver does not answer",
              "look for processes in state D and for Xids in the kernel's log; a reboot may be "
              "needed"),
    EventKind("reader_failed", "critical", "GPUs cannot be read",
              "see what the agent says of its reader"),
    EventKind("reader_back", "info", "Driver answers again", ""),
    EventKind("driver_gone", "critical", "No driver",
              "load the driver, or wait until whoever reloads it has done so"),
    EventKind("driver_back", "info", "Driver back", ""),
    EventKind("driver_released", "info", "Driver let go of",
              "`gpudeck release` on the node takes it back"),
    EventKind("driver_taken", "info", "Driver taken back", ""),
    EventKind("driver_changed", "info", "Driver changed", ""),
    EventKind("gpu_lost", "critical", "GPU lost",
              "look for its Xid; reset the GPU or reboot the node, and check its seat and power"),
    EventKind("gpu_error", "critical", "GPU answers with errors only",
              "look for its Xids in the kernel's log; drain the node, reset the GPU or reboot"),
    EventKind("gpu_back", "info", "GPU back", ""),
    EventKind("gpu_added", "info", "GPU added", ""),
    EventKind("gpu_removed", "info", "GPU removed", ""),
    EventKind("xid", "warning", "Xid", "see what this Xid means"),
    EventKind("ecc_corrected", "warning", "Memory errors corrected",
              "nothing now; watch how often it comes"),
    EventKind("ecc_uncorrected", "critical", "Memory error not corrected",
              "restart what was hit; reset the GPU if it comes again"),
    EventKind("rows_pending", "warning", "Row remap pending",
              "reset the GPU when its tasks have ended"),
    EventKind("rows_failed", "critical", "Row remap failed", "exchange the board"),
    EventKind("pages_pending", "warning", "Page retirement pending",
              "reset the GPU when its tasks have ended"),
    EventKind("recovery_advised", "critical", "Recovery advised", "do what the driver advises"),
    EventKind("nvlink_down", "critical", "NVLink down",
              "end collective work on this GPU; reset it, and check the fabric"),
    EventKind("nvlink_up", "info", "NVLink up", ""),
    EventKind("pcie_degraded", "warning", "PCIe link degraded",
              "check the board's seat, riser and slot"),
    EventKind("throttle_began", "warning", "Slowing down",
              "look at temperature and power; heat: check fans and air, power: check the cap"),
    EventKind("throttle_ended", "info", "Full speed again", ""),
    EventKind("node_refused", "warning", "Refused by the hub",
              "look at what speaks with this node's key; if it is not your agent, revoke the node"),
    EventKind("outbox_dropped", "warning", "History dropped",
              "the hub was away for longer than this node can keep"),
    EventKind("task_began", "info", "Task began", ""),
    EventKind("task_ended", "info", "Task ended", ""),
)
KINDS: dict[str, EventKind] = {kind.key: kind for kind in _TABLE}


def kind_of(key: str) -> EventKind:
    """A newer agent may send what this hub does not know: it is shown under its own name."""
    return KINDS.get(key) or EventKind(key, "info", key.replace("_", " ").capitalize(), "")


# A board that works at the power it is allowed is slowed down by design.
POWER_CAP_BIT = 0x4


def severity_of(key: str, numbers: Mapping[str, float]) -> Severity:
    """Of one Event. An Xid of the task's own making is no fault of the node."""
    if key == "xid":
        return explain(int(numbers.get("xid", UNKNOWN_CODE))).severity
    if key == "throttle_began" and int(numbers.get("bits", 0)) == POWER_CAP_BIT:
        return "info"
    return kind_of(key).severity
