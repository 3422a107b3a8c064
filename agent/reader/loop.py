"""Loop of the reading process: a ReaderMessage a second to stdout, until it must exit."""

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from msgspec import structs

from ..backends import Reader, ReaderUnavailableError
from .messages import FactsDeltaCodec, ReaderMessage, pack
from .supervisor import PERIOD_S


def next_second(now: float, phase_s: float, last: float | None) -> float:
    """Return the next whole second plus phase. Never `last` again, should a wait end early."""
    second = float(int(now - phase_s) + 1)
    if last is not None and second + phase_s == last:
        second += PERIOD_S
    return second + phase_s


class ReaderRequests:
    """Requests of the parent: how many on-demand lists so far, and in the end that we exit."""

    def __init__(self) -> None:
        self._bell = threading.Event()
        self.must_exit = False
        self.requests = self.answers = 0

    def add(self, times: int) -> None:
        self.requests += times
        self._bell.set()

    def end(self) -> None:
        self.must_exit = True
        self._bell.set()

    def wait(self, seconds: float) -> None:
        self._bell.wait(seconds)
        self._bell.clear()


def receive_requests(orders: ReaderRequests) -> None:
    while data := os.read(0, 4_096):
        orders.add(len(data))
    orders.end()
    # The reading thread exits between two calls into the driver; only one that hangs is killed.
    time.sleep(60)
    os._exit(0)


def serve(
    open_reader: Callable[[], Reader], out: BinaryIO, orders: ReaderRequests, phase_s: float
) -> None:
    """Send a reading once a second until asked to exit, or until the reader is unavailable: then a
    fresh process must find the driver, as this one may have an old library mapped."""
    due: float | None = None
    codec = FactsDeltaCodec()
    try:
        reader = open_reader()
        reader.watch(lambda event: _write(out, ReaderMessage(None, happenings=(event,))))
        gc.freeze()  # what exists now stays: no collection needs to scan it again
        while not orders.must_exit:
            _write(out, codec.strip(_answer(reader)))
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
    while not orders.must_exit and (left_s := deadline - time.monotonic()) > 0:
        requests = orders.requests
        if requests == orders.answers:
            orders.wait(left_s)
        else:
            _write(out, _fresh(reader, requests))
            orders.answers = requests


def _fresh(reader: Reader, requests: int) -> ReaderMessage:
    try:
        return ReaderMessage(None, fresh=reader.fresh(), asked=requests)
    except ReaderUnavailableError as why:  # the next reading finds out whether all is lost
        return ReaderMessage(None, detail=why.detail, asked=requests)


_writing = threading.Lock()


def _write(out: BinaryIO, answer: ReaderMessage) -> None:
    body = pack(answer)
    with _writing:
        out.write(body)
        out.flush()
