"""`simulate="h100x2"`: description of the simulated machine. Pure."""

import re

BOARDS = ("h100", "a100", "l40s", "4090", "h100-mig", "mixed")  # that the agent can simulate
_SHORT = re.compile(r"([a-z0-9-]+?)(?:x(\d{1,3}))?")


def options_of(simulate: str) -> str:
    """Return options of the simulated backend. Text with `key=value` is passed through as it is."""
    words = simulate.strip()
    if "=" in words:
        return words
    match = _SHORT.fullmatch(words.lower())
    if match is None:
        raise ValueError(f"simulate={simulate!r}: a board and a number are needed, as in 'h100x2'")
    if match[1] not in BOARDS:
        raise ValueError(f"simulate={simulate!r}: no such board; there are {', '.join(BOARDS)}")
    return f"profile={match[1]},gpus={match[2] or 1}"
