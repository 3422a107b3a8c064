"""Power limits, clock locks and compute modes through NVML (nvml-mps.md A.1, B).

`nvmlDeviceSetPowerManagementLimit_v2` always says success: the first version is used. There is no
call that reads a clock lock back.
"""

from typing import Any

import pynvml

from ...readings import GpuLimits

DENIED = ("the driver refuses: settings of a GPU need CAP_SYS_ADMIN for the agent; root in a "
          "container without it is not enough")


class NvmlLimits:
    def __init__(self) -> None:
        pynvml.nvmlInit()

    def read(self, uuid: str) -> GpuLimits:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        low, high = _told("nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
        util = _told("nvmlDeviceGetUtilizationRates", handle)
        return GpuLimits(
            uuid, _watts(_told("nvmlDeviceGetPowerManagementLimit", handle)), _watts(low),
            _watts(high), _watts(_told("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
            _told("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
            _told("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
            None if util is None else float(util.gpu),
            compute_mode=_told("nvmlDeviceGetComputeMode", handle))

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

    def close(self) -> None:
        pynvml.nvmlShutdown()


def open_limits(options: str) -> NvmlLimits:
    return NvmlLimits()


def in_words(error: Exception) -> str:
    """What a refusal of the driver means, for people."""
    code = getattr(error, "value", None)
    match code:
        case pynvml.NVML_ERROR_NO_PERMISSION:
            return DENIED
        case pynvml.NVML_ERROR_NOT_SUPPORTED | pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return "this GPU, or its driver, does not let this be set"
        case pynvml.NVML_ERROR_INVALID_ARGUMENT:
            return "the driver calls this value wrong for this GPU"
        case pynvml.NVML_ERROR_GPU_IS_LOST:
            return "the GPU is lost; see `dmesg`"
        case pynvml.NVML_ERROR_NOT_FOUND:
            return "there is no GPU of this UUID here"
    return f"the driver says: {error}"


ERRORS: tuple[type[Exception], ...] = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)


def _told(name: str, *arguments: Any) -> Any:
    try:
        return getattr(pynvml, name)(*arguments)
    except ERRORS as error:
        if getattr(error, "value", None) in (pynvml.NVML_ERROR_GPU_IS_LOST,
                                             pynvml.NVML_ERROR_UNINITIALIZED):
            raise
        return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1_000
