"""The still picture under a widget: a separate output, because a front end that finds no kernel
shows an error in the place of a widget and nothing else."""

import threading
from collections.abc import Callable
from typing import Any

from .static_table import StaticContent

AFTER_PICTURES = 3  # by then there is something to show


class StaticOutput:
    def __init__(self, make: Callable[[], StaticContent]) -> None:
        self._make = make
        self._handle: Any = None
        self._shell: Any = None
        self._pictures = 0
        self._lock = threading.Lock()

    def show(self) -> None:
        from IPython.core.getipython import get_ipython
        from IPython.display import DisplayHandle

        shell = get_ipython()
        if not hasattr(shell, "kernel"):
            # A terminal has printed the widget as text, and each update would print it again.
            return
        with self._lock:
            self._pictures = 0
            if self._handle is None:
                self._handle, self._shell = DisplayHandle(), shell
                # A cell that ends has changed the notebook anyway: no more changes than that.
                self._shell.events.register("post_run_cell", self._renew)
            self._handle.display(self._data(), raw=True)

    def count_picture(self) -> None:
        """Count one more picture."""
        self._pictures += 1
        if self._pictures == AFTER_PICTURES:
            self._renew()

    def close(self) -> None:
        if self._shell is not None:
            self._shell.events.unregister("post_run_cell", self._renew)
            self._renew()
            self._shell = None

    def _renew(self, *_: Any) -> None:
        if self._handle is not None:
            self._handle.update(self._data(), raw=True)

    def _data(self) -> dict[str, str]:
        content = self._make()
        return {"text/plain": content.text, "text/html": content.html}
