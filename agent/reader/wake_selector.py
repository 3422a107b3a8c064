"""Wait for pipes, or for a ring from any thread."""

import contextlib
import os
import selectors
from typing import IO, Any


class WakeSelector:
    def __init__(self) -> None:
        self.is_rung = False
        self._selector = selectors.DefaultSelector()
        bell_r, bell_w = os.pipe()
        # Files, not numbers: a late ring must not go into a file that got the number since.
        self._bell_r, self._bell_w = os.fdopen(bell_r, "rb", 0), os.fdopen(bell_w, "wb", 0)
        self._selector.register(self._bell_r, selectors.EVENT_READ, None)

    def ring(self) -> None:
        """End a `select`, the current or the next one. From any thread."""
        if not self.is_rung:
            self.is_rung = True
            with contextlib.suppress(OSError, ValueError):  # closed already
                self._bell_w.write(b"x")

    def watch(self, pipe: IO[bytes], data: Any) -> None:
        self._selector.register(pipe, selectors.EVENT_READ, data)

    def forget(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]  # a pipe: we registered it

    def select(self, seconds: float) -> list[selectors.SelectorKey]:
        """Return pipes that have something to read, or have ended."""
        keys = [key for key, _ in self._selector.select(seconds)]
        if any(key.data is None for key in keys):
            self._bell_r.read(4_096)
        return [key for key in keys if key.data is not None]

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self.forget(key)
        self._selector.close()
        self._bell_w.close()
