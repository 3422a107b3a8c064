"""Lines of a log that somebody else can cause: one a minute of each of them."""

EVERY_S = 60.0


class LogPacer:
    def __init__(self) -> None:
        self._of: dict[str, tuple[float | None, int]] = {}  # since when, and how many were left out

    def due(self, key: str, mono: float) -> int | None:
        """None: not now. Else how many were left out since the last."""
        since, left_out = self._of.get(key, (None, 0))
        if since is not None and mono - since < EVERY_S:
            self._of[key] = since, left_out + 1
            return None
        self._of[key] = mono, 0
        return left_out
