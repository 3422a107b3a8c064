"""Log lines that somebody else can cause: at most one a minute for each key."""

EVERY_S = 60.0


class LogPacer:
    def __init__(self) -> None:
        self._paced: dict[str, tuple[float | None, int]] = {}  # since when, how many left out

    def due(self, key: str, mono: float) -> int | None:
        """Return how many lines were left out since the last one; None: do not log now."""
        since, left_out = self._paced.get(key, (None, 0))
        if since is not None and mono - since < EVERY_S:
            self._paced[key] = since, left_out + 1
            return None
        self._paced[key] = mono, 0
        return left_out
