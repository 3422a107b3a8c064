"""Admits the nodes of one process to the hub in turn, at the pace at which they get through."""


class ConnectLimiter:
    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: set[str] = set()

    def admits(self, name: str) -> bool:
        """Admit the node if there is room; it is inside from now on, until it leaves."""
        if name not in self._inside and len(self._inside) >= self._most:
            return False
        self._inside.add(name)
        return True

    def leave(self, name: str) -> None:
        self._inside.discard(name)
