"""Compute modes that gpudeck has set and keeps in force: a reloaded driver has forgotten them. A
mode that somebody else set since is never changed, also by a reloaded driver: unlike a limit, a
mode has no end at which it goes by itself."""

from msgspec.structs import replace

from gpudeck.contract.limits import ManagedComputeMode

from ..readings import GpuLimits
from .apply import MODES
from .timed_limits import not_read

MODE_WORDS: dict[int | None, str] = {
    0: "default: several processes at a time", 2: "prohibited: no process",
    3: "exclusive: one process at a time"}


def words_of(mode: int | None) -> str:
    return MODE_WORDS.get(mode, "not known")


def judged(mode: ManagedComputeMode, current: GpuLimits | None) -> ManagedComputeMode:
    """Return the mode with its proof. `not_in_force`: the driver forgot it, or never obeyed."""
    if current is None or current.trouble:
        return replace(mode, state="unknown", words=not_read(current))
    if current.compute_mode is None:
        return replace(mode, state="unknown", words="the driver does not report the compute mode")
    words = f"the driver reports {words_of(current.compute_mode)}"
    is_set = current.compute_mode == MODES[mode.mode]
    return replace(mode, state="in_force" if is_set else "not_in_force", words=words)


def is_forgotten(mode: ManagedComputeMode, is_fresh: bool) -> bool:
    """Return whether a mode that is not set now is ours to set again, by its last state.
    `is_fresh`: the driver or the agent was restarted, and the mode was not seen since."""
    return is_fresh and mode.state != "drifted"


def left_alone(mode: ManagedComputeMode, now: ManagedComputeMode) -> ManagedComputeMode:
    """Return the mode as drifted, unless it never was in force: then nobody has changed it."""
    if mode.state == "not_in_force":
        return mode
    return replace(now, state="drifted",
                   words=f"somebody has changed it since: {now.words}"[:1_024])
