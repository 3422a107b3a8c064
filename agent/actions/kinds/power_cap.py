"""Limits a GPU's power for a time."""

from collections.abc import Iterator

from gpudeck.actions import Refusal
from gpudeck.limits import PowerCap, SettingChange

from .execution import ActionExecution
from .setting_kind import Applied, GpuPreview, SettingKind
from .timed_limit import begin, power_words, slows_others, span


def flaws(setting: PowerCap, preview: GpuPreview) -> Iterator[Refusal]:
    limits = preview.limits
    low, high = limits.power_min_w, limits.power_max_w
    if low is None or high is None or limits.power_w is None:
        yield Refusal("setting", "this GPU does not say what power it can be limited to")
    elif not low <= setting.watts <= high:
        yield Refusal("setting", f"this GPU takes {low:.0f} to {high:.0f} W, not {setting.watts} W")


def changes(setting: PowerCap, preview: GpuPreview) -> tuple[SettingChange, ...]:
    return (SettingChange("power limit", power_words(preview.limits),
                          f"{setting.watts} W for {span(setting.lease_s)}"),)


def do(act: ActionExecution, setting: PowerCap) -> Applied:
    return begin(act, setting, "power", (float(setting.watts),))


POWER_CAP = SettingKind(PowerCap, flaws, changes, slows_others, do)
