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
class Kind:
    key: str
    severity: Severity  # an Xid's own is in xid.py
    label: str
    advice: str


_TABLE: tuple[Kind, ...] = (
    Kind("agent_began", "info", "Agent began", ""),
    Kind("node_began", "info", "Node started", ""),
    Kind("clock_stepped", "warning", "Clock stepped",
         "check the node's time service: history of this moment may have a hole or an overlap"),
    Kind("reader_hung", "critical", "Driver does not answer",
         "look for processes in state D and for Xids in the kernel's log; a reboot may be needed"),
    Kind("reader_failed", "critical", "Gpus cannot be read",
         "see what the agent says of its reader"),
    Kind("reader_back", "info", "Driver answers again", ""),
    Kind("driver_gone", "critical", "No driver",
         "load the driver, or wait until whoever reloads it has done so"),
    Kind("driver_back", "info", "Driver back", ""),
    Kind("driver_released", "info", "Driver let go of",
         "`gpudeck release` on the node takes it back"),
    Kind("driver_taken", "info", "Driver taken back", ""),
    Kind("driver_changed", "info", "Driver changed", ""),
    Kind("gpu_lost", "critical", "Gpu lost",
         "look for its Xid; reset the Gpu or reboot the node, and check its seat and power"),
    Kind("gpu_back", "info", "Gpu back", ""),
    Kind("gpu_added", "info", "Gpu added", ""),
    Kind("gpu_removed", "info", "Gpu removed", ""),
    Kind("xid", "warning", "Xid", "see what this Xid means"),
    Kind("ecc_corrected", "warning", "Memory errors corrected",
         "nothing now; watch how often it comes"),
    Kind("ecc_uncorrected", "critical", "Memory error not corrected",
         "restart what was hit; reset the Gpu if it comes again"),
    Kind("rows_pending", "warning", "Row remap pending",
         "reset the Gpu when its tasks have ended"),
    Kind("rows_failed", "critical", "Row remap failed", "exchange the board"),
    Kind("pages_pending", "warning", "Page retirement pending",
         "reset the Gpu when its tasks have ended"),
    Kind("recovery_advised", "critical", "Recovery advised", "do what the driver advises"),
    Kind("nvlink_down", "critical", "NVLink down",
         "end collective work on this Gpu; reset it, and check the fabric"),
    Kind("nvlink_up", "info", "NVLink up", ""),
    Kind("pcie_degraded", "warning", "PCIe link degraded",
         "check the board's seat, riser and slot"),
    Kind("throttle_began", "warning", "Slowing down",
         "look at temperature and power; heat: check fans and air, power: check the cap"),
    Kind("throttle_ended", "info", "Full speed again", ""),
    Kind("outbox_dropped", "warning", "History dropped",
         "the hub was away for longer than this node can keep"),
    Kind("task_began", "info", "Task began", ""),
    Kind("task_ended", "info", "Task ended", ""),
)
KINDS: dict[str, Kind] = {kind.key: kind for kind in _TABLE}


def kind_of(key: str) -> Kind:
    """A newer agent may send what this hub does not know: it is shown under its own name."""
    return KINDS.get(key) or Kind(key, "info", key.replace("_", " ").capitalize(), "")


# A board that works at the power it is allowed is slowed down by design.
POWER_CAP_BIT = 0x4


def severity_of(key: str, numbers: Mapping[str, float]) -> Severity:
    """Of one Event. An Xid of the task's own making is no fault of the node."""
    if key == "xid":
        return explain(int(numbers.get("xid", UNKNOWN_CODE))).severity
    if key == "throttle_began" and int(numbers.get("bits", 0)) == POWER_CAP_BIT:
        return "info"
    return kind_of(key).severity
