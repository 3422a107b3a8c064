"""One reading of this machine's driver, for verbs that look once."""

import threading
import time
from functools import partial

from gpudeck.errors import CommandError
from gpudeck.wire import ReaderState

from ..actions.hold_files import driver_order
from ..reader.watchdog import ThreadedReaderProcess
from ..readings import ProcessReading, Reading, with_slow
from ..settings import ConnectionSettings

FIRST_READING_WITHIN_S = 30.0


class NoReadingError(CommandError):
    def __init__(self, state: ReaderState, detail: str) -> None:
        super().__init__(detail)
        self.state = state


def read_once(asked: ConnectionSettings, readings: int, lists: int = 0
              ) -> tuple[Reading, tuple[ProcessReading, ...]]:
    """This machine's newest Reading after so many, and after so many process lists, which come
    with every other one. Rates are differences: they need two."""
    news = threading.Event()
    source = ThreadedReaderProcess(asked.backend, asked.simulate,
                                   partial(driver_order, asked.data), news.set)
    processes: tuple[ProcessReading, ...] = ()
    before: Reading | None = None
    deadline = time.monotonic() + FIRST_READING_WITHIN_S
    try:
        while True:
            news.wait(0.2)
            news.clear()
            reading = source.latest()
            if reading is not None:
                before = reading = with_slow(reading, before)
                if reading.processes is not None:
                    processes = reading.processes
                    lists -= 1
                readings -= 1
                if readings <= 0 and lists <= 0:
                    return reading, processes
            elif source.state not in ("starting", "ok"):
                raise NoReadingError(source.state, source.detail)
            elif time.monotonic() > deadline:
                raise NoReadingError("hung", "the driver does not answer; see `dmesg`")
    finally:
        source.close()
