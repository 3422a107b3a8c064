"""Limits of a GPU's memory for control groups, enforced by the driver from 615 on.

Only the hard limit is set. A soft one is a reservation in every group around, which stays when its
group ends without being cleared; and MPS ends clients that are above theirs (NVIDIA's page on
memory partitioning of MPS v3). Unverified on hardware.
"""

import os
from typing import Any

import pynvml

from ...readings import GroupMemory
from ...tasks.control_group import folder_of, group_of

# What a group without a limit answers. That of the driver without the kernel's controller is
# NOT_SUPPORTED, as others report.
UNLIMITED = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)
IN_USE = ("more than that is in use now; the limit is set once less is: end tasks, or free memory "
          "in them")
NO_CONTROLLER = ("the kernel does not count GPU memory for this control group: the controller dmem "
                 "is not enabled in the cgroup.subtree_control of the group around it")
NO_CALL = "this driver cannot limit memory for a control group; 615 is the first that can"
NO_GROUP_LIMIT = ("the driver limits no memory of this GPU for control groups; boards that are "
                  "split by MIG cannot be limited")


class GroupLimitError(Exception):
    """Refusal that is ours, or that means something else here than elsewhere, for people."""


def read(uuid: str, group: str) -> GroupMemory:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    limit = _hard_bytes(handle, group)
    around = os.path.dirname(group)
    is_inherited = limit is not None and _hard_bytes(handle, around) == limit
    return GroupMemory(uuid, group, limit, is_inherited)


def set_limit(uuid: str, group: str, limit_bytes: int | None) -> None:
    """Set a limit, or clear it. Raises GroupLimitError, NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    if limit_bytes is None:
        _set(handle, group, None)
        return
    if _used_bytes(handle, group) > limit_bytes:
        raise GroupLimitError(IN_USE)
    _set(handle, group, limit_bytes)
    # A group without a limit may have no count, and has one now.
    if _used_bytes(handle, group) > limit_bytes:
        _set(handle, group, None)
        raise GroupLimitError(IN_USE)


def _set(handle: Any, group: str, limit_bytes: int | None) -> None:
    most = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if limit_bytes is None else limit_bytes
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(
        nameSpace=os.fsencode(group), softLimit=0, hardLimit=most)
    try:
        pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)
    except pynvml.NVMLError as error:
        raise _explained(error) from error


def own_limit(handle: Any) -> int | None:
    """Return the limit of the group that this process is in, by which the driver answers it; None:
    none. Raises NVMLError."""
    group = group_of("self")
    return None if group is None else _hard_of(_answer(handle, folder_of(group)))


def _hard_bytes(handle: Any, group: str) -> int | None:
    return _hard_of(_limits(handle, group))


def _hard_of(limits: Any) -> int | None:
    if limits is None or limits.hardLimit == pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX:
        return None
    return int(limits.hardLimit)


def _used_bytes(handle: Any, group: str) -> int:
    limits = _limits(handle, group)
    return 0 if limits is None else int(limits.currentUsed)


def _limits(handle: Any, group: str) -> Any:
    try:
        return _answer(handle, group)
    except pynvml.NVMLError as error:
        raise _explained(error) from error


def _answer(handle: Any, group: str) -> Any:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=os.fsencode(group))
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except pynvml.NVMLError as error:
        if error.value in UNLIMITED:
            return None
        raise
    return limits


def _explained(error: pynvml.NVMLError) -> Exception:
    words = {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: NO_CALL,
             pynvml.NVML_ERROR_NOT_FOUND: NO_CONTROLLER,
             pynvml.NVML_ERROR_NOT_SUPPORTED: NO_GROUP_LIMIT}.get(error.value)
    return error if words is None else GroupLimitError(words)
