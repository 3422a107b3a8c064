"""What NVML's error codes mean to an agent, and what people can do about them (nvml-mps.md A.1)."""

from enum import IntEnum

from gpudeck.metrics import Absence
from gpudeck.wire import ReaderState

from . import Unavailable


class Code(IntEnum):
    """nvml.h, nvmlReturn_t: those we tell apart."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
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
_WHY: dict[int, tuple[ReaderState, str]] = {
    Code.LIBRARY_NOT_FOUND: (
        "no_library",
        "libnvidia-ml.so.1 is not on this machine: install the NVIDIA driver; in a container, "
        "start it with the NVIDIA Container Toolkit (--gpus all)."),
    Code.DRIVER_NOT_LOADED: (
        "no_driver",
        "the NVIDIA kernel module is not loaded: run `sudo modprobe nvidia`, and see `dmesg` if "
        "that fails."),
    Code.LIB_RM_VERSION_MISMATCH: (
        "no_driver",
        "the NVIDIA library and the loaded kernel module are of different versions: the driver "
        "was updated; reload the module or reboot."),
    Code.UNINITIALIZED: ("no_driver", "the NVIDIA driver was unloaded."),
    Code.FUNCTION_NOT_FOUND: (
        "no_driver", "the NVIDIA driver is too old for this agent: 450 or newer is needed."),
    Code.NO_PERMISSION: (
        "failed", "the driver refuses access: give the agent's user access to /dev/nvidia*."),
    Code.OPERATING_SYSTEM: (
        "failed", "the operating system blocks access to /dev/nvidia* (cgroup or container)."),
}


def unavailable(code: int, said: object = "") -> Unavailable:
    state, detail = _WHY.get(
        code, ("failed", f"the NVIDIA driver does not work: error {code}, {said or 'unknown'}.")
    )
    return Unavailable(state, detail)


def no_gpus() -> Unavailable:
    return Unavailable(
        "no_gpus",
        "the NVIDIA driver is there and lists no GPU: see `lspci | grep -i nvidia` and `dmesg`.",
    )
