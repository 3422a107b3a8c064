"""What NVML's error codes mean to an agent, and what people can do about them (nvml-mps.md A.1)."""

from dataclasses import dataclass
from enum import IntEnum

from gpudeck.metrics import Absence
from gpudeck.wire import ReaderState

from .. import ReaderUnavailableError


class NvmlReturnCode(IntEnum):
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
    NvmlReturnCode.NOT_SUPPORTED: Absence.UNSUPPORTED,
    NvmlReturnCode.FUNCTION_NOT_FOUND: Absence.UNSUPPORTED,
    NvmlReturnCode.ARGUMENT_VERSION_MISMATCH: Absence.UNSUPPORTED,
    NvmlReturnCode.NO_PERMISSION: Absence.DENIED,
}
NO_DRIVER = (NvmlReturnCode.UNINITIALIZED, NvmlReturnCode.DRIVER_NOT_LOADED,
             NvmlReturnCode.LIB_RM_VERSION_MISMATCH)


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """One way in which there is nothing to read. The reading process says it and ends: a fresh
    one, which finds whatever library is there by then, tries again after 1, 2, 4 … 30 s."""

    state: ReaderState
    detail: str  # what is wrong, and what to do


# By NVML's code at init or later; the last five are our own findings.
LIFE: dict[int | str, NvmlFailure] = {
    NvmlReturnCode.LIBRARY_NOT_FOUND: NvmlFailure(
        "no_library",
        "libnvidia-ml.so.1 is not on this machine: install the NVIDIA driver; in a container, "
        "start it with the NVIDIA Container Toolkit (--gpus all)."),
    NvmlReturnCode.DRIVER_NOT_LOADED: NvmlFailure(
        "no_driver",
        "the NVIDIA kernel module is not loaded: run `sudo modprobe nvidia`, and see `dmesg` if "
        "that fails."),
    NvmlReturnCode.LIB_RM_VERSION_MISMATCH: NvmlFailure(
        "no_driver",
        "the NVIDIA library and the loaded kernel module are of different versions: the driver "
        "was updated; reload the module or reboot."),
    NvmlReturnCode.UNINITIALIZED: NvmlFailure("no_driver", "the NVIDIA driver was unloaded."),
    NvmlReturnCode.FUNCTION_NOT_FOUND: NvmlFailure(
        "no_driver", "the NVIDIA driver is too old for this agent: 450 or newer is needed."),
    NvmlReturnCode.NO_PERMISSION: NvmlFailure(
        "failed", "the driver refuses access: give the agent's user access to /dev/nvidia*."),
    NvmlReturnCode.OPERATING_SYSTEM: NvmlFailure(
        "failed", "the operating system blocks access to /dev/nvidia* (cgroup or container)."),
    NvmlReturnCode.UNKNOWN: NvmlFailure(
        "failed",
        "the NVIDIA driver does not work: error 999, Unknown Error, for everything. A container "
        "has lost its devices then (`systemctl daemon-reload` on the host does that): restart "
        "the container; elsewhere see `dmesg` for Xid or NVRM messages."),
    "no_gpus": NvmlFailure(
        "no_gpus",
        "the NVIDIA driver is there and lists no GPU: see `lspci | grep -i nvidia` and `dmesg`."),
    "asleep": NvmlFailure(
        "no_gpus",
        "every GPU is asleep (powered down) and is not woken to be read; each is listed as soon "
        "as something uses it."),
    "all_lost": NvmlFailure(
        "failed",
        "every GPU is lost, and which ones they are cannot be told: look for their Xids in "
        "`dmesg`; reset them or reboot, and check seats and power."),
    "changed": NvmlFailure(
        "no_driver",
        "the NVIDIA driver was changed; reading begins again with its new library."),
    "renumbered": NvmlFailure(
        "no_driver",
        "the NVIDIA driver was reloaded and numbers its Gpus anew; reading begins again."),
}


def unavailable(key: "int | str", said: object = "") -> ReaderUnavailableError:
    found = LIFE.get(key)
    if found is None:
        return ReaderUnavailableError("failed", f"the NVIDIA driver does not work: error {key}, "
                                                f"{said or 'unknown'}.")
    return ReaderUnavailableError(found.state, f"{found.detail} ({said})" if said else found.detail)


def no_gpus() -> ReaderUnavailableError:
    return unavailable("no_gpus")
