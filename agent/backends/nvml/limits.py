"""Power limits, clock locks and compute modes through NVML (pitfalls.md A.1).

`nvmlDeviceSetPowerManagementLimit_v2` always says success: the first version is used. There is no
call that reads a clock lock back.
"""

from typing import Any

import pynvml

from ...readings import GpuLimits, GroupMemory, MigBoard
from . import group_memory, mig_layout

DENIED = ("the driver refuses: settings of a GPU need CAP_SYS_ADMIN for the agent; root in a "
          "container without it is not enough")


class NvmlLimits:
    def __init__(self) -> None:
        pynvml.nvmlInit()

    def read(self, uuid: str) -> GpuLimits:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        low, high = _query("nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
        util = _query("nvmlDeviceGetUtilizationRates", handle)
        return GpuLimits(
            uuid, _watts(_query("nvmlDeviceGetPowerManagementLimit", handle)), _watts(low),
            _watts(high), _watts(_query("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
            _query("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
            _query("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
            None if util is None else float(util.gpu),
            compute_mode=_query("nvmlDeviceGetComputeMode", handle),
            recovery_action=_recovery(handle))

    def set_power(self, uuid: str, watts: float) -> None:
        pynvml.nvmlDeviceSetPowerManagementLimit(
            pynvml.nvmlDeviceGetHandleByUUID(uuid), round(watts * 1_000))

    def lock_clocks(self, uuid: str, low_mhz: float, high_mhz: float) -> None:
        pynvml.nvmlDeviceSetGpuLockedClocks(
            pynvml.nvmlDeviceGetHandleByUUID(uuid), round(low_mhz), round(high_mhz))

    def unlock_clocks(self, uuid: str) -> None:
        pynvml.nvmlDeviceResetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByUUID(uuid))

    def set_mode(self, uuid: str, mode: int) -> None:
        pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), mode)

    def mig(self, uuid: str) -> MigBoard:
        return mig_layout.board(uuid)

    def set_mig_mode(self, uuid: str, is_on: bool) -> None:
        mig_layout.set_mode(uuid, is_on)

    def create_instance(self, uuid: str, profile: int, start: int) -> None:
        mig_layout.create(uuid, profile, start)

    def destroy_instance(self, uuid: str, instance: int) -> None:
        mig_layout.destroy(uuid, instance)

    def memory(self, uuid: str, group: str) -> GroupMemory:
        return group_memory.read(uuid, group)

    def set_memory(self, uuid: str, group: str, limit_bytes: int | None) -> None:
        group_memory.set_limit(uuid, group, limit_bytes)

    def close(self) -> None:
        pynvml.nvmlShutdown()


def open_limits(options: str) -> NvmlLimits:
    return NvmlLimits()


def in_words(error: Exception) -> str:
    """Return what a refusal of the driver means, for people."""
    if isinstance(error, group_memory.GroupLimitError):
        return str(error)
    code = getattr(error, "value", None)
    match code:
        case pynvml.NVML_ERROR_NO_PERMISSION:
            return DENIED
        case pynvml.NVML_ERROR_NOT_SUPPORTED | pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return "this GPU, or its driver, does not let this be set"
        case pynvml.NVML_ERROR_INVALID_ARGUMENT:
            return "the driver calls this value wrong for this GPU"
        case pynvml.NVML_ERROR_IN_USE:
            return ("it is in use by a process, or by a program that holds it open; DCGM is known "
                    "for that: restart it")
        case pynvml.NVML_ERROR_RESET_REQUIRED:
            return ("the board takes it only with a reset, which a virtual machine cannot do: it "
                    "needs a reboot")
        case pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES:
            return "the driver has no room for this instance at its place"
        case pynvml.NVML_ERROR_GPU_IS_LOST:
            return "the GPU is lost; see `dmesg`"
        case pynvml.NVML_ERROR_NOT_FOUND:
            return "there is no GPU of this UUID here"
    return f"the driver says: {error}"


ERRORS: tuple[type[Exception], ...] = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError,
                                      group_memory.GroupLimitError)


def _query(name: str, *arguments: Any) -> Any:
    try:
        return getattr(pynvml, name)(*arguments)
    except ERRORS as error:
        if getattr(error, "value", None) in (pynvml.NVML_ERROR_GPU_IS_LOST,
                                             pynvml.NVML_ERROR_UNINITIALIZED):
            raise
        return None


def _recovery(handle: Any) -> int | None:
    values = _query("nvmlDeviceGetFieldValues", handle,
                    [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1_000
