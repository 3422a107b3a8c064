"""Wiring of the schedulers' readings into the node."""

from ..capability import Capability, NodeCore
from . import SchedulerReadings, Schedulers


def build(core: NodeCore, schedulers: Schedulers) -> Capability:
    readings = SchedulerReadings(schedulers, core.wake)
    return Capability(
        name="schedulers",
        connected=lambda welcome, now: readings.changed(),
        poll=lambda now: readings.step(now, is_live=True),
        note_outcome=readings.changed, close=readings.close)
