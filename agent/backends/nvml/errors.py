"""Meaning of NVML's error codes to an agent, and what people can do about them (pitfalls.md
A.1)."""


import pynvml

from gpudeck.contract.wire import ReaderState
from gpudeck.measures.metrics import Absence

from .. import ReaderUnavailableError

# What this process will not get by asking again.
NEVER: dict[int, Absence] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Absence.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Absence.UNSUPPORTED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Absence.UNSUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Absence.DENIED,
}
NO_DRIVER = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
             pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)


# Ways in which there is nothing to read: the state, what is wrong, and what to do. By NVML's code
# at init or later; the last five are our own findings. The reading process says it and ends: a
# fresh one, which finds whatever library is there by then, tries again after 1, 2, 4 … 30 s.
LIFE: dict[int | str, tuple[ReaderState, str]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("no_library",
        "libnvidia-ml.so.1 is not on this machine: install the NVIDIA driver; in a container, "
        "start it with the NVIDIA Container Toolkit (--gpus all)."),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: ("no_driver",
        "the NVIDIA kernel module is not loaded: run `sudo modprobe nvidia`, and see `dmesg` if "
        "that fails."),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ("no_driver",
        "the NVIDIA library and the loaded kernel module are of different versions: the driver "
        "was updated; reload the module or reboot."),
    pynvml.NVML_ERROR_UNINITIALIZED: ("no_driver", "the NVIDIA driver was unloaded."),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: ("no_driver",
        "the NVIDIA driver is too old for this agent: 450 or newer is needed."),
    pynvml.NVML_ERROR_NO_PERMISSION: ("failed",
        "the driver refuses access: give the agent's user access to /dev/nvidia*."),
    pynvml.NVML_ERROR_OPERATING_SYSTEM: ("failed",
        "the operating system blocks access to /dev/nvidia* (cgroup or container)."),
    pynvml.NVML_ERROR_UNKNOWN: ("failed",
        "the NVIDIA driver does not work: error 999, Unknown Error, for everything. A container "
        "has lost its devices then (`systemctl daemon-reload` on the host does that): restart "
        "the container; elsewhere see `dmesg` for Xid or NVRM messages."),
    "no_gpus": ("no_gpus",
        "the NVIDIA driver is loaded and lists no GPU: see `lspci | grep -i nvidia` and `dmesg`."),
    "asleep": ("no_gpus",
        "every GPU is asleep (powered down) and is not woken to be read; each is listed as soon "
        "as something uses it."),
    "all_lost": ("failed",
        "every GPU is lost, and which ones is not known: look for their Xids in "
        "`dmesg`; reset them or reboot, and check seats and power."),
    "changed": ("no_driver",
        "the NVIDIA driver was changed; reading begins again with its new library."),
    "renumbered": ("no_driver",
        "the NVIDIA driver was reloaded and renumbered its GPUs; reading begins again."),
}


def unavailable(key: "int | str", words: object = "") -> ReaderUnavailableError:
    if key not in LIFE:
        return ReaderUnavailableError("failed", f"the NVIDIA driver does not work: error {key}, "
                                                f"{words or 'unknown'}.")
    state, detail = LIFE[key]
    return ReaderUnavailableError(state, f"{detail} ({words})" if words else detail)
