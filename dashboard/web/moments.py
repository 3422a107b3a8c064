"""Times as parameters of a request: UTC seconds or RFC 3339."""
import re
from datetime import UTC, datetime

from flask import request

from .answers import bad

# A moment, as it is asked for: UTC seconds, or RFC 3339.
SECONDS = r"[0-9]{1,10}(\.[0-9]{1,9})?"


RFC_3339 = (r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]"
            r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
            r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])")


EPOCH = datetime.fromtimestamp(0, UTC)


def moment(name: str) -> float | None:
    """Read a time parameter, in UTC seconds or RFC 3339; None if it is absent."""
    text = request.args.get(name)
    if text is None:
        return None
    seconds = float(text) if re.fullmatch(SECONDS, text) else _rfc_3339(text)
    if seconds is None:
        raise bad(f"{name} is a time: UTC seconds, or such as 2026-01-31T12:00:00Z")
    return seconds


def _rfc_3339(text: str) -> float | None:
    text = text.replace(" ", "+")  # an offset whose sign nobody encoded
    if not re.fullmatch(RFC_3339, text):
        return None
    try:
        return (datetime.fromisoformat(text.upper()) - EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None
