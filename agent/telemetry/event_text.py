"""Events in words. Pure."""

from collections.abc import Mapping

from gpudeck.contract.wire import Event
from gpudeck.measures.events import kind_of

TEXT_MAX = 1_024


def event_of(
    kind: str, at: float, what: str, numbers: Mapping[str, float] | None = None,
    gpu_uuid: str | None = None, task_id: str | None = None,
) -> Event:
    """Make an Event, with the advice for its kind."""
    advice = kind_of(kind).advice
    text = f"{what}{advice and f'; {advice}'}"[:TEXT_MAX]
    return Event(0, at, kind, gpu_uuid=gpu_uuid, task_id=task_id, text=text,
                 numbers=dict(numbers or {}))


def duration(seconds: float) -> str:
    minutes, hours, days = seconds / 60, seconds / 3_600, seconds / 86_400
    if minutes < 2:
        return f"{seconds:.0f} s"
    if hours < 2:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if days < 2 else f"{days:.1f} days"
