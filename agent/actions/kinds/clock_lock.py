"""Locks a GPU's clocks for a time."""

from collections.abc import Iterator

from gpudeck.actions import Refusal
from gpudeck.limits import ClockLock, SettingChange

from .execution import ActionExecution
from .setting_kind import Applied, GpuPreview, SettingKind
from .timed_limit import begin, lock_words, slows_others, span


def flaws(setting: ClockLock, preview: GpuPreview) -> Iterator[Refusal]:
    top = preview.limits.clock_max_mhz
    if setting.min_mhz > setting.max_mhz:
        yield Refusal("setting", "a lock goes from a lower clock to a higher one")
    elif top is not None and setting.max_mhz > top:
        yield Refusal("setting", f"this GPU's clock goes to {top:.0f} MHz, not "
                                 f"{setting.max_mhz} MHz")


def changes(setting: ClockLock, preview: GpuPreview) -> tuple[SettingChange, ...]:
    return (SettingChange("clock lock", lock_words(preview.limits),
                          f"{setting.min_mhz} to {setting.max_mhz} MHz for "
                          f"{span(setting.lease_s)}"),)


def warnings(setting: ClockLock, preview: GpuPreview) -> Iterator[str]:
    yield from slows_others(setting, preview)
    yield "NVML cannot read a lock back: that it is in force is seen by the clock alone."


def do(act: ActionExecution, setting: ClockLock) -> Applied:
    return begin(act, setting, "clocks", (float(setting.min_mhz), float(setting.max_mhz)))


CLOCK_LOCK = SettingKind(ClockLock, flaws, changes, warnings, do)
