"""Limits of simulated GPUs: a file in the folder of the world, which their readers obey."""

from typing import Any

from msgspec import structs

from ...readings import GpuLimits, GroupMemory, MigBoard
from .board import SimulatedBoardLimits
from .folder import limits_file
from .reader import parse_options
from .world import facts_of

NO_GROUPS = "simulated tasks have no memory that a control group could limit"
NOT_SPLIT = "simulated boards are split by their profile (h100-mig), and not otherwise"


class SimulatedLimits:
    def __init__(self, options: str) -> None:
        parsed = parse_options(options)
        if parsed.world is None:
            raise ValueError("a simulated node without a folder of its world keeps no limits")
        self._file = limits_file(parsed.world, parsed.node)
        self._profile = parsed.board
        self._boards = {facts.uuid for facts in facts_of(parsed) if facts.parent_uuid is None}

    def read(self, uuid: str) -> GpuLimits:
        profile, limit = self._profile, self._limits(uuid)
        return GpuLimits(
            uuid, profile.power_limit_w if limit.power_w is None else limit.power_w,
            profile.power_limit_min_w, profile.power_limit_max_w, profile.power_limit_w,
            float(profile.sm_clock_max_mhz), locked_mhz=limit.locked_mhz, tells_lock=True,
            compute_mode=limit.compute_mode or 0)

    def set_power(self, uuid: str, watts: float) -> None:
        if uuid in self._boards and not (
                self._profile.power_limit_min_w <= watts <= self._profile.power_limit_max_w):
            raise ValueError("the driver calls this value wrong for this GPU")
        self._set(uuid, power_w=watts)

    def lock_clocks(self, uuid: str, low_mhz: float, high_mhz: float) -> None:
        self._set(uuid, locked_mhz=(low_mhz, high_mhz))

    def unlock_clocks(self, uuid: str) -> None:
        self._set(uuid, locked_mhz=None)

    def set_mode(self, uuid: str, mode: int) -> None:
        self._set(uuid, compute_mode=mode)

    def mig(self, uuid: str) -> MigBoard:
        raise ValueError(NOT_SPLIT)

    def set_mig_mode(self, uuid: str, is_on: bool) -> None:
        raise ValueError(NOT_SPLIT)

    def create_instance(self, uuid: str, profile: int, start: int) -> None:
        raise ValueError(NOT_SPLIT)

    def destroy_instance(self, uuid: str, instance: int) -> None:
        raise ValueError(NOT_SPLIT)

    def memory(self, uuid: str, group: str) -> GroupMemory:
        raise ValueError(NO_GROUPS)

    def set_memory(self, uuid: str, group: str, limit_bytes: int | None) -> None:
        raise ValueError(NO_GROUPS)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _limits(self, uuid: str) -> SimulatedBoardLimits:
        if uuid not in self._boards:
            raise ValueError("there is no GPU of this UUID here")
        return (self._file.now() or {}).get(uuid, SimulatedBoardLimits())

    def _set(self, uuid: str, **changes: Any) -> None:
        changed = structs.replace(self._limits(uuid), **changes)
        self._file.keep({**(self._file.now() or {}), uuid: changed})


def open_limits(options: str) -> SimulatedLimits:
    return SimulatedLimits(options)


ERRORS: tuple[type[Exception], ...] = (ValueError, OSError)


def in_words(error: Exception) -> str:
    return str(error)
