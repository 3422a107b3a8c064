"""The loop of the reading process: a ReaderMessage a second to stdout, until it must leave."""

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from msgspec import structs

from ..backends import Reader, ReaderUnavailableError
from .messages import FactsDeltaCodec, ReaderMessage, packed
from .supervisor import PERIOD_S


def next_second(now: float, phase_s: float, last: float | None) -> float:
    """The next whole second plus phase. Never `last` again, should a wait end early."""
    second = float(int(now - phase_s) + 1)
    if last is not None and second + phase_s == last:
        second += PERIOD_S
    return second + phase_s


class ReaderRequests:
    """What the parent wants: a number of Fresh lists so far, and in the end that we leave."""

    def __init__(self) -> None:
        self._bell = threading.Event()
        self.leave = False
        self.asked = self.answered = 0

    def ask(self, times: int) -> None:
        self.asked += times
        self._bell.set()

    def end(self) -> None:
        self.leave = True
        self._bell.set()

    def wait(self, seconds: float) -> None:
        self._bell.wait(seconds)
        self._bell.clear()


def hear_parent(orders: ReaderRequests) -> None:
    while asked := os.read(0, 4_096):
        orders.ask(len(asked))
    orders.end()
    # The reading thread leaves between two calls into the driver; only one that hangs is cut.
    time.sleep(60)
    os._exit(0)


def serve(
    open_reader: Callable[[], Reader], out: BinaryIO, orders: ReaderRequests, phase_s: float
) -> None:
    """Answer once a second until asked to exit or nothing is left to read: then a fresh process
    must find the driver, as this one may have an old library mapped."""
    due: float | None = None
    told = FactsDeltaCodec()
    try:
        reader = open_reader()
        reader.watch(lambda happened: _write(out, ReaderMessage(None, happenings=(happened,))))
        gc.freeze()  # what is there now stays: no collection needs to look at it again
        while not orders.leave:
            _write(out, told.without(_answer(reader)))
            due = next_second(time.time(), phase_s, due)
            _answer_until(time.monotonic() + due - time.time(), reader, out, orders)
        reader.close()
    except ReaderUnavailableError as why:
        _write(out, ReaderMessage(None, why.state, why.detail))


def _answer(reader: Reader) -> ReaderMessage:
    began = time.monotonic()
    reading = reader.read()
    took_s = time.monotonic() - began
    return ReaderMessage(structs.replace(reading, took_s=took_s), detail=reading.detail)


def _answer_until(deadline: float, reader: Reader, out: BinaryIO, orders: ReaderRequests) -> None:
    while not orders.leave and (left := deadline - time.monotonic()) > 0:
        asked = orders.asked
        if asked == orders.answered:
            orders.wait(left)
        else:
            _write(out, _fresh(reader, asked))
            orders.answered = asked


def _fresh(reader: Reader, asked: int) -> ReaderMessage:
    try:
        return ReaderMessage(None, fresh=reader.fresh(), asked=asked)
    except ReaderUnavailableError as why:  # the next reading finds out whether all is lost
        return ReaderMessage(None, detail=why.detail, asked=asked)


_writing = threading.Lock()


def _write(out: BinaryIO, answer: ReaderMessage) -> None:
    body = packed(answer)
    with _writing:
        out.write(body)
        out.flush()
