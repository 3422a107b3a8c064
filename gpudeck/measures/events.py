"""Table of the Events of a Node. Agents raise them, pages and rules read them.

`text` of an Event says what happened and what to do in this case; the advice here is for its kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpudeck.measures.xid import UNKNOWN_CODE, explain

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")

# The kind of event by which an agent reports that its reader is in this state.
READER_TROUBLE: Mapping[str, str] = {
    "hung": "reader_hung", "failed": "reader_failed", "no_gpus": "reader_failed",
    "no_driver": "driver_gone", "no_library": "driver_gone", "released": "driver_released",
}


@dataclass(frozen=True, slots=True)
class EventKind:
    key: str
    severity: Severity  # an Xid's own is in xid.py
    label: str
    advice: str


_TABLE: tuple[EventKind, ...] = (
    EventKind("agent_began", "info", "Agent started", ""),
    EventKind("node_began", "info", "Node started", ""),
    EventKind("clock_stepped", "warning", "Clock stepped",
              "check the node's time service: history around this time may have a gap or an "
              "overlap"),
    EventKind("reader_hung", "critical", "Driver does not answer",
              "look for processes in state D and for Xids in the kernel's log; a reboot may be "
              "needed"),
    EventKind("reader_failed", "critical", "GPUs cannot be read",
              "see the agent's report on its reader"),
    EventKind("reader_back", "info", "Driver answers again", ""),
    EventKind("driver_gone", "critical", "No driver",
              "load the driver, or wait until its reload has finished"),
    EventKind("driver_back", "info", "Driver back", ""),
    EventKind("driver_released", "info", "Driver released",
              "`gpudeck release` on the node opens it again"),
    EventKind("driver_taken", "info", "Driver opened again", ""),
    EventKind("driver_changed", "info", "Driver changed", ""),
    EventKind("gpu_lost", "critical", "GPU lost",
              "look for its Xid; reset the GPU or reboot the node, and check its seat and power"),
    EventKind("gpu_error", "critical", "GPU fails every driver call",
              "look for its Xids in the kernel's log; drain the node, reset the GPU or reboot"),
    EventKind("gpu_back", "info", "GPU back", ""),
    EventKind("gpu_added", "info", "GPU added", ""),
    EventKind("gpu_removed", "info", "GPU removed", ""),
    EventKind("xid", "warning", "Xid", "see what this Xid means"),
    EventKind("ecc_corrected", "warning", "Memory errors corrected",
              "nothing now; watch how often it comes"),
    EventKind("ecc_uncorrected", "critical", "Memory error not corrected",
              "restart the affected task; reset the GPU if it recurs"),
    EventKind("rows_pending", "warning", "Row remap pending",
              "reset the GPU when its tasks have ended"),
    EventKind("rows_failed", "critical", "Row remap failed", "replace the board"),
    EventKind("pages_pending", "warning", "Page retirement pending",
              "reset the GPU when its tasks have ended"),
    EventKind("recovery_advised", "critical", "Recovery advised", "do what the driver advises"),
    EventKind("nvlink_down", "critical", "NVLink down",
              "end collective work on this GPU; reset it, and check the fabric"),
    EventKind("nvlink_up", "info", "NVLink up", ""),
    EventKind("pcie_degraded", "warning", "PCIe link degraded",
              "check the board's seat, riser and slot"),
    EventKind("throttle_began", "warning", "Throttling started",
              "for heat check fans and air, for power the cap"),
    EventKind("throttle_ended", "info", "Throttling ended", ""),
    EventKind("node_refused", "warning", "Refused by the hub",
              "check which program uses this node's key; if it is not your agent, revoke the node"),
    EventKind("outbox_dropped", "warning", "History dropped",
              "the outage of the hub was longer than this node can buffer"),
    EventKind("task_began", "info", "Task started", ""),
    EventKind("task_ended", "info", "Task ended", ""),
)
KINDS: dict[str, EventKind] = {kind.key: kind for kind in _TABLE}


def kind_of(key: str) -> EventKind:
    """Return the kind of a key. A newer agent may send one that this hub does not know: it is shown
    under its own name."""
    return KINDS.get(key) or EventKind(key, "info", key.replace("_", " ").capitalize(), "")


# A board that works at the power it is allowed throttles by design.
POWER_CAP_BIT = 0x4


def severity_of(key: str, numbers: Mapping[str, float]) -> Severity:
    """Return the severity of one Event. An Xid of the task's own making is no fault of the node."""
    if key == "xid":
        return explain(int(numbers.get("xid", UNKNOWN_CODE))).severity
    if key == "throttle_began" and int(numbers.get("bits", 0)) == POWER_CAP_BIT:
        return "info"
    return kind_of(key).severity
