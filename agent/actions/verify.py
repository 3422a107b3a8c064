"""Verification of an end: is the memory back? Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudeck.contract.actions import MEMORY_BACK_SHARE, ActionVerification, CommandState, total

from ..readings import OnDemandReading, ProcessReading


@dataclass(frozen=True, slots=True)
class MemoryVerification:
    """Memory of the victims, and how much came back; None: it could not be observed."""

    returned: bool | None
    before_bytes: float | None  # what the victims held
    after_bytes: float | None  # what of it did not come back


def memory(before: OnDemandReading, after: OnDemandReading | None,
           victims: frozenset[int]) -> MemoryVerification:
    """Compare two lists: what the GPUs gained, and others have taken since, is what came back."""
    held_bytes = _by_gpu([process for process in before.processes if process.pid in victims])
    before_bytes = total(held_bytes.values())
    if after is None or not held_bytes:
        return MemoryVerification(None, before_bytes, None)
    left_bytes = {uuid: _unreturned(uuid, amount, before, after, victims)
                  for uuid, amount in held_bytes.items()}
    return MemoryVerification(_verdict(held_bytes, left_bytes), before_bytes,
                              total(left_bytes.values()))


def _unreturned(
    uuid: str, held_bytes: float | None, before: OnDemandReading, after: OnDemandReading,
    victims: frozenset[int]
) -> float | None:
    used_before, now = before.mem_used_bytes.get(uuid), after.mem_used_bytes.get(uuid)
    grown = _growth(uuid, before, after, victims)
    if held_bytes is None or used_before is None or now is None or grown is None:
        return None
    return min(max(held_bytes - (used_before - now + grown), 0.0), held_bytes)


def _growth(uuid: str, before: OnDemandReading, after: OnDemandReading,
            victims: frozenset[int]) -> float | None:
    was, now = (
        _by_gpu([process for process in fresh.processes if process.pid not in victims]
                ).get(uuid, 0.0)
        for fresh in (before, after))
    return None if was is None or now is None else now - was


def _verdict(held_bytes: Mapping[str, float | None], left_bytes: Mapping[str, float | None]
             ) -> bool | None:
    """Judge each GPU: one whose memory stays is enough to say no; an unknown one forbids a yes."""
    verdicts = [
        None if stays is None or not amount else stays <= (1 - MEMORY_BACK_SHARE) * amount
        for amount, stays in ((held_bytes[uuid], left_bytes[uuid]) for uuid in held_bytes)
    ]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _by_gpu(processes: Sequence[ProcessReading]) -> dict[str, float | None]:
    amounts: dict[str, list[float | None]] = {}
    for process in processes:
        amounts.setdefault(process.gpu_uuid, []).append(process.mem_used_bytes)
    return {uuid: total(parts) for uuid, parts in amounts.items()}


def outcome(verified: ActionVerification) -> CommandState:
    """Done means observed: exited, memory returned, no bystander vanished. What could not be
    observed does not count against it, and is shown as that."""
    if not verified.exited or verified.memory_returned is False:
        return "not_effective"
    return "not_effective" if verified.bystanders_alive is False else "done"
