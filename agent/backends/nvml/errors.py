"""What NVML's error codes mean to an agent, and what people can do about them (nvml-mps.md A.1)."""

from dataclasses import dataclass
from enum import IntEnum

from gpudeck.metrics import Absence
from gpudeck.wire import ReaderState

from .. import Unavailable


class Code(IntEnum):
    """nvml.h, nvmlReturn_t: those we tell apart."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


# What this process will not get by asking again.
NEVER: dict[int, Absence] = {
    Code.NOT_SUPPORTED: Absence.UNSUPPORTED,
    Code.FUNCTION_NOT_FOUND: Absence.UNSUPPORTED,
    Code.ARGUMENT_VERSION_MISMATCH: Absence.UNSUPPORTED,
    Code.NO_PERMISSION: Absence.DENIED,
}
NO_DRIVER = (Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH)


@dataclass(frozen=True, slots=True)
class Situation:
    """One way in which there is nothing to read. The reading process says it and ends: a fresh
    one, which finds whatever library is there by then, tries again after 1, 2, 4 … 30 s."""

    state: ReaderState
    detail: str  # what is wrong, and what to do


# By NVML's code at init or later; the last five are our own findings.
LIFE: dict[int | str, Situation] = {
    Code.LIBRARY_NOT_FOUND: Situation(
        "no_library",
        "libnvidia-ml.so.1 is not on this machine: install the NVIDIA driver; in a container, "
        "start it with the NVIDIA Container Toolkit (--gpus all)."),
    Code.DRIVER_NOT_LOADED: Situation(
        "no_driver",
        "the NVIDIA kernel module is not loaded: run `sudo modprobe nvidia`, and see `dmesg` if "
        "that fails."),
    Code.LIB_RM_VERSION_MISMATCH: Situation(
        "no_driver",
        "the NVIDIA library and the loaded kernel module are of different versions: the driver "
        "was updated; reload the module or reboot."),
    Code.UNINITIALIZED: Situation("no_driver", "the NVIDIA driver was unloaded."),
    Code.FUNCTION_NOT_FOUND: Situation(
        "no_driver", "the NVIDIA driver is too old for this agent: 450 or newer is needed."),
    Code.NO_PERMISSION: Situation(
        "failed", "the driver refuses access: give the agent's user access to /dev/nvidia*."),
    Code.OPERATING_SYSTEM: Situation(
        "failed", "the operating system blocks access to /dev/nvidia* (cgroup or container)."),
    Code.UNKNOWN: Situation(
        "failed",
        "the NVIDIA driver does not work: error 999, Unknown Error, for everything. A container "
        "has lost its devices then (`systemctl daemon-reload` on the host does that): restart "
        "the container; elsewhere see `dmesg` for Xid or NVRM messages."),
    "no_gpus": Situation(
        "no_gpus",
        "the NVIDIA driver is there and lists no GPU: see `lspci | grep -i nvidia` and `dmesg`."),
    "asleep": Situation(
        "no_gpus",
        "every GPU is asleep (powered down) and is not woken to be read; each is listed as soon "
        "as something uses it."),
    "all_lost": Situation(
        "failed",
        "every GPU is lost, and which ones they are cannot be told: look for their Xids in "
        "`dmesg`; reset them or reboot, and check seats and power."),
    "changed": Situation(
        "no_driver",
        "the NVIDIA driver was changed; reading begins again with its new library."),
    "renumbered": Situation(
        "no_driver",
        "the NVIDIA driver was reloaded and numbers its Gpus anew; reading begins again."),
}


def unavailable(key: "int | str", said: object = "") -> Unavailable:
    found = LIFE.get(key)
    if found is None:
        return Unavailable("failed", f"the NVIDIA driver does not work: error {key}, "
                                     f"{said or 'unknown'}.")
    return Unavailable(found.state, f"{found.detail} ({said})" if said else found.detail)


def no_gpus() -> Unavailable:
    return unavailable("no_gpus")
