"""Meaning of each Xid and what to do about it. Pure.

An Xid is the driver's report that something went wrong on a GPU. Numbers and remedies follow
NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), in our words.
`blame` says where to look first: an Xid of the task's own making is no fault of the node.
"""

from dataclasses import dataclass
from typing import Literal

Blame = Literal["task", "memory", "board", "driver", "link", "power", "unknown"]


@dataclass(frozen=True, slots=True)
class Xid:
    code: int
    meaning: str
    blame: Blame
    advice: str

    @property
    def severity(self) -> Literal["info", "warning", "critical"]:
        """Information where the task itself is to blame, a warning where work can go on."""
        if self.blame == "task":
            return "info"
        goes_on = self.advice in (_NOTE, _AGAIN, _LATER)
        return "warning" if goes_on or self.blame == "unknown" else "critical"

    @property
    def sentence(self) -> str:
        return f"Xid {self.code}: {self.meaning}; {self.advice}"


_TASK = "look at the task's own log; if other tasks on this GPU fail alike, run diagnostics"
_AGAIN = "restart the task; if it recurs, reset the GPU"
_RESET = ("move the work away and reset the GPU; if it recurs, run diagnostics and request service")
_REBOOT = "move the work away and reboot the node; if it recurs, request service"
_SERVICE = "take the node out of service and ask the vendor"
_NOTE = "nothing now; watch how often it comes"
_LATER = "reset the GPU when its tasks have ended"

_TABLE: tuple[tuple[int, str, Blame, str], ...] = (
    (8, "the GPU stopped processing a task's work", "task", _AGAIN),
    (13, "a kernel of the task raised an exception, often an address out of bounds", "task", _TASK),
    (31, "a task touched memory that is not mapped", "task", _TASK),
    (32, "the GPU was fed a broken stream of commands", "link", _AGAIN),
    (38, "the driver's firmware failed", "driver", _REBOOT),
    *((code, "a copy engine failed", "task", _AGAIN) for code in (39, 40, 41)),
    (43, "a task's channel was reset after a fault of that task", "task", _TASK),
    (44, "the GPU failed while it switched between tasks", "driver", _RESET),
    (45, "a task's work was torn down, as when it ends or is ended", "task",
     "nothing, unless nobody ended it: then look for another Xid just before"),
    (46, "the GPU stopped processing and did not come back in time", "board", _RESET),
    (48, "memory had an error that could not be corrected (double bit)", "memory", _RESET),
    (54, "the board's extra power cable is not plugged in", "power",
     "check the board's power cables"),
    (56, "the display engine failed", "board", _RESET),
    (57, "the board's memory link failed to train", "board", _SERVICE),
    (58, "the board's memory link failed", "board", _SERVICE),
    (61, "the GPU's power controller halted", "board", _REBOOT),
    (62, "the GPU's power controller halted", "board", _REBOOT),
    (63, "a faulty row of memory was replaced, or will be at the next reset", "memory",
     _LATER),
    (64, "a faulty row of memory could not be replaced", "memory", _SERVICE),
    (68, "the video decoder failed", "task", _TASK),
    (69, "a kernel of the task used the graphics engine wrongly", "task", _TASK),
    (74, "an NVLink failed", "link",
     "move the work away, reset the GPUs on this link; if it recurs, check bridge and cables"),
    (79, "the GPU has fallen off the PCIe bus", "board",
     "move the work away and reboot the node; check power, cooling and seating; if it recurs, "
     "request service"),
    (92, "memory has many errors that were corrected", "memory", _NOTE),
    (94, "memory had an uncorrectable error, contained to one task", "memory",
     "restart that task; reset the GPU when the others have ended"),
    (95, "memory had an uncorrectable error that was not contained", "memory", _RESET),
    (109, "a task's context switch timed out", "task", _AGAIN),
    (110, "a security fault", "board", _REBOOT),
    (119, "the GPU's system processor (GSP) did not answer", "driver", _RESET),
    (120, "the GPU's system processor (GSP) failed", "driver", _RESET),
    (121, "the link between processor and GPU (C2C) had an error", "link", _NOTE),
    (122, "the board's flash memory could not be read", "board", _RESET),
    (123, "the board's flash memory could not be written", "board", _RESET),
    (136, "an NVLink could not be trained", "link", _RESET),
    (137, "an access to another GPU's memory through NVLink was refused", "task", _TASK),
    (140, "memory had an error that the board could not recover from", "memory", _RESET),
    (143, "the GPU could not be initialised", "board", _REBOOT),
    *((code, f"an NVLink reported an error ({unit})", "link", _RESET) for code, unit in enumerate(
        ("SAW", "RLW", "TLW", "TREX", "NVLPW", "NETIR", "MSE"), 144)),
    (151, "a key of the encrypted link was renewed late", "driver", _REBOOT),
    (154, "the driver says which recovery this GPU needs", "board",
     "do what the GPU's recovery action says"),
    (155, "an NVLink reported an error (software)", "link", _NOTE),
    (156, "a faulty part of the GPU was retired", "board", _LATER),
    (157, "a faulty part of the GPU could not be retired", "board", _SERVICE),
    (158, "the GPU had a fatal timeout", "board", _RESET),
)
KNOWN: dict[int, Xid] = {row[0]: Xid(*row) for row in _TABLE}
UNKNOWN_CODE = 999  # what NVML says when the driver does not tell the number


def explain(code: int) -> Xid:
    if code in KNOWN:
        return KNOWN[code]
    if code == UNKNOWN_CODE:
        return Xid(code, "the driver does not say which", "unknown",
                   "look for NVRM: Xid in the node's kernel log")
    return Xid(code, "not in our table", "unknown",
               "look it up in NVIDIA's Xid catalogue, and at the lines around it in the kernel log")
