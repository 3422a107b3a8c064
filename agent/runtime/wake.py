"""Signal that ends the wait of a node's own thread."""

import threading
from typing import Protocol


class WakeSignal(Protocol):
    """Signal that the node's own thread waits for."""

    def ring(self) -> None:
        """End a `wait`, the current or the next one. Cheap, from any thread."""

    def wait(self, seconds: float) -> None: ...


class ThreadWakeSignal:
    def __init__(self) -> None:
        self._event = threading.Event()
        self.ring = self._event.set

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)
        self._event.clear()
