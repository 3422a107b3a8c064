"""Moments of the past, as people say them at a terminal."""

import re
import time
from datetime import UTC, datetime

from gpudeck.errors import CommandError, ExitCode

_SPANS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
TIMES = "24h or 7d (so long ago), now, UTC seconds, or such as 2026-01-31T12:00:00Z"


def moment_of(text: str) -> float:
    """UTC seconds. Without a zone it is UTC. Raises CommandError."""
    now = time.time()
    if text == "now":
        return now
    if re.fullmatch(r"[0-9]{9,11}(\.[0-9]+)?", text):
        return float(text)
    if ago := re.fullmatch(r"\s*([0-9]{1,9})\s*([smhd])\s*", text):
        return now - int(ago[1]) * _SPANS_S[ago[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise CommandError(f"{text[:80]!r} is no time: write {TIMES}", ExitCode.USAGE) from None
