"""Mechanisms by which this machine can limit the GPU memory of a task: what is in force is read
back, and what cannot be verified is not called a limit."""

from collections.abc import Iterable, Sequence

from gpudeck.contract.desired_state import MechanismName, QuotaMechanism
from gpudeck.contract.limits import MpsDaemon
from gpudeck.words.actions import printable

from ..backends import backend_named
from ..quotas.mechanisms import HAMI_FILES, mechanisms, mps
from ..settings import ConnectionSettings
from .local_reading import NoReadingError, read_once

# The strictest first.
ORDER: tuple[MechanismName, ...] = ("memory_limit", "mig", "mps", "hami", "ladder")
NAMES = {"memory_limit": "the driver's own limit", "mig": "MIG", "mps": "MPS", "hami": "HAMi-core",
         "ladder": "the ladder"}
STATES = {"there": "there", "not_there": "not there", "unknown": "not known"}


def means_here(reach: ConnectionSettings, daemons: Sequence[MpsDaemon], has_limits: bool
               ) -> list[QuotaMechanism]:
    """`has_limits`: limits by the driver are in force here."""
    try:
        facts = read_once(reach, 1)[0].facts
    except NoReadingError:
        facts = ()
    backend = backend_named(reach.backend)
    files = () if backend.capabilities.simulates_mps else HAMI_FILES
    by_name = {mechanism.name: mechanism for mechanism in (
        *mechanisms(backend.driver_version(), facts, has_limits or None, files), mps(daemons))}
    return [by_name[name] for name in ORDER]


def best(candidates: Iterable[QuotaMechanism]) -> str:
    return next(mechanism.name for mechanism in candidates
                if mechanism.state == "there")


def means_lines(candidates: Sequence[QuotaMechanism]) -> Iterable[str]:
    yield f"GPU memory is limited here by {NAMES[best(candidates)]} at best:"
    for mechanism in candidates:
        yield f"  {NAMES[mechanism.name]}: {STATES[mechanism.state]}: {printable(mechanism.proof)}"
    yield ("  time slices limit no memory; `gpudeck gpu time-slice` sets how long they are, for a "
           "whole GPU")
