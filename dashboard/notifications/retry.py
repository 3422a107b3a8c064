"""Queued notifications, and when they are retried. Pure: random numbers are arguments."""

from msgspec import Struct

from .words import AlertNotification

FIRST_S = 5.0
LONGEST_S = 900.0
PARKED_AFTER_S = 86_400.0


class QueuedNotification(Struct):
    """Stored before anything of it is sent, until its receiver has accepted it."""

    notice: AlertNotification
    next_at: float
    attempts: int = 0
    error: str = ""
    parked_at: float | None = None
    left: tuple[str, ...] = ()  # of several addresses, those that have not accepted it


def record_failure(waiting: QueuedNotification, error: str, now: float, random: float,
                   is_final: bool = False, retry_s: float | None = None) -> None:
    """Note a failure and set the next attempt, with full jitter, so that a receiver that comes back
    does not get everything at once. After a day, or when the receiver refuses it for good, it is
    parked, where people see it."""
    waiting.attempts += 1
    waiting.error = error[:300]
    most_s = min(LONGEST_S, FIRST_S * 2.0 ** min(waiting.attempts - 1, 20))
    waiting.next_at = now + (random * most_s if retry_s is None else retry_s)
    if is_final or now - waiting.notice.at >= PARKED_AFTER_S:
        waiting.parked_at = now


def retry_now(waiting: QueuedNotification, now: float) -> None:
    """Retry because a person asked for it."""
    waiting.next_at, waiting.parked_at = now, None
