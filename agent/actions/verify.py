"""What an end left behind: is the memory back? Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudeck.actions import MEMORY_BACK_SHARE, ActionVerification, CommandState, total

from ..readings import OnDemandReading, ProcessReading


@dataclass(frozen=True, slots=True)
class MemoryVerification:
    """None: could not be observed."""

    returned: bool | None
    before_bytes: float | None  # what the victims held
    after_bytes: float | None  # what of it did not come back


def memory(before: OnDemandReading, after: OnDemandReading | None,
           victims: frozenset[int]) -> MemoryVerification:
    """What the GPUs gained, and others have taken since, is what came back."""
    held = _by_gpu([each for each in before.processes if each.pid in victims])
    before_bytes = total(held.values())
    if after is None or not held:
        return MemoryVerification(None, before_bytes, None)
    left = {uuid: _left(uuid, amount, before, after, victims) for uuid, amount in held.items()}
    return MemoryVerification(_verdict(held, left), before_bytes, total(left.values()))


def _left(
    uuid: str, held: float | None, before: OnDemandReading, after: OnDemandReading,
    victims: frozenset[int]
) -> float | None:
    used, now = before.mem_used_bytes.get(uuid), after.mem_used_bytes.get(uuid)
    grown = _growth(uuid, before, after, victims)
    if held is None or used is None or now is None or grown is None:
        return None
    return min(max(held - (used - now + grown), 0.0), held)


def _growth(uuid: str, before: OnDemandReading, after: OnDemandReading,
            victims: frozenset[int]) -> float | None:
    was, now = (
        _by_gpu([each for each in fresh.processes if each.pid not in victims]).get(uuid, 0.0)
        for fresh in (before, after))
    return None if was is None or now is None else now - was


def _verdict(held: Mapping[str, float | None], left: Mapping[str, float | None]) -> bool | None:
    """One GPU whose memory stays is enough to say no; one that is unknown, not to say yes."""
    verdicts = [
        None if stays is None or not amount else stays <= (1 - MEMORY_BACK_SHARE) * amount
        for amount, stays in ((held[uuid], left[uuid]) for uuid in held)
    ]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _by_gpu(processes: Sequence[ProcessReading]) -> dict[str, float | None]:
    amounts: dict[str, list[float | None]] = {}
    for each in processes:
        amounts.setdefault(each.gpu_uuid, []).append(each.mem_used_bytes)
    return {uuid: total(found) for uuid, found in amounts.items()}


def outcome(verified: ActionVerification) -> CommandState:
    """Done means observed: exited, memory returned, no bystander vanished. What could not be
    observed does not count against it, and is shown as that."""
    if not verified.exited or verified.memory_returned is False:
        return "not_effective"
    return "not_effective" if verified.bystanders_alive is False else "done"
