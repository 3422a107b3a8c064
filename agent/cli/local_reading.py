"""A reading of this machine's driver, for commands that read once."""

import math
import threading
import time
from functools import partial

from gpudeck.contract.wire import ReaderState
from gpudeck.errors import CommandError

from ..actions.hold_files import driver_order
from ..reader.watchdog import ThreadedReaderProcess
from ..readings import ProcessReading, Reading, with_slow
from ..settings import ConnectionSettings

FIRST_READING_WITHIN_S = 30.0
OTHERS_WITHIN_S = 3.0  # a driver that hangs does not keep the boards of other vendors from people


class NoReadingError(CommandError):
    def __init__(self, state: ReaderState, detail: str) -> None:
        super().__init__(detail)
        self.state = state


def read_once(reach: ConnectionSettings, readings: int, lists: int = 0,
              others_within_s: float = math.inf) -> tuple[Reading, tuple[ProcessReading, ...]]:
    """Return this machine's newest Reading after `readings` of them, and after `lists` process
    lists, which come with every other one. Rates are differences: they need two.
    `others_within_s`: after so long the boards of several vendors are returned without those of a
    driver that has not answered, for people to look at. Raises NoReadingError."""
    news = threading.Event()
    source = ThreadedReaderProcess(reach.backend, reach.simulate,
                                   partial(driver_order, reach.data), news.set,
                                   begin_within_s=others_within_s)
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
