"""Compute modes that gpudeck has set and that are to hold: a driver that is loaded anew has
forgotten them. What somebody else has set since is left alone for good, also by a driver that is
loaded anew: unlike a limit, a mode has no end at which it goes by itself.
"""

import msgspec
from msgspec.structs import replace

from gpudeck.limits import MAX_LEASES, ManagedComputeMode

from ..journal.store import ActionJournal
from ..journal.stored_list import StoredList
from ..readings import GpuLimits
from .apply import MODES

MODE_WORDS: dict[int | None, str] = {
    0: "default: several processes at a time", 2: "prohibited: no process",
    3: "exclusive: one process at a time"}


class ComputeModeStore:
    """Raises JournalError; `is_shared` as of timed limits."""

    def __init__(self, journal: ActionJournal, is_shared: bool = True) -> None:
        self._kept = StoredList(journal, "modes", ManagedComputeMode, is_shared)

    def all(self) -> tuple[ManagedComputeMode, ...]:
        return self._kept.all()

    @property
    def is_surely_empty(self) -> bool:
        """Without a look at the disk."""
        return self._kept.is_surely_empty

    def keep(self, mode: ManagedComputeMode) -> None:
        self._change(mode.gpu_uuid, (mode,), "mode", mode)

    def note(self, mode: ManagedComputeMode, is_again: bool = False) -> None:
        """What is known of it now; in the Audit where it is another state than before, and where it
        was set again."""
        was = next((each for each in self.all() if each.gpu_uuid == mode.gpu_uuid), None)
        if was is None or (was == mode and not is_again):
            return
        kind = "mode_again" if is_again else "mode_state" if was.state != mode.state else None
        self._change(mode.gpu_uuid, (mode,), kind, mode)

    def forget(self, uuid: str) -> ManagedComputeMode | None:
        """What was kept; None: nothing."""
        was = next((each for each in self.all() if each.gpu_uuid == uuid), None)
        if was is not None:
            self._change(uuid, (), "mode_over", was)
        return was

    def _change(self, uuid: str, new: tuple[ManagedComputeMode, ...], kind: str | None,
                mode: ManagedComputeMode) -> None:
        record = None if kind is None else {"kind": kind, "mode": msgspec.to_builtins(mode)}
        self._kept.change(lambda all: (*(each for each in all if each.gpu_uuid != uuid), *new)[
            -MAX_LEASES:], record)


def words_of(mode: int | None) -> str:
    return MODE_WORDS.get(mode, "not known")


def judged(mode: ManagedComputeMode, found: GpuLimits | None) -> ManagedComputeMode:
    """With its proof. `not_in_force`: the driver has forgotten it, or never obeyed."""
    if found is None or found.trouble:
        words = "the Gpu is not there now" if found is None else found.trouble
        return replace(mode, state="unknown", words=words[:1_024])
    if found.compute_mode is None:
        return replace(mode, state="unknown", words="the driver does not say the mode that is set")
    said = f"the driver says {words_of(found.compute_mode)}"
    is_so = found.compute_mode == MODES[mode.mode]
    return replace(mode, state="in_force" if is_so else "not_in_force", words=said)


def is_forgotten(mode: ManagedComputeMode, is_anew: bool) -> bool:
    """Of one that is not there now, as it was known before: whether it is ours to set again.
    `is_anew`: the driver or the agent has begun anew, and it was not seen since."""
    return is_anew and mode.state != "drifted"


def left_alone(mode: ManagedComputeMode, now: ManagedComputeMode) -> ManagedComputeMode:
    """Not there and not ours to set; one that never was there nobody has changed."""
    if mode.state == "not_in_force":
        return mode
    return replace(now, state="drifted",
                   words=f"somebody has changed it since: {now.words}"[:1_024])
