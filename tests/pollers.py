"""A poller of the fake driver, in its own process. It prints CPU milliseconds per sample of all
GPUs, at 1 Hz like the agent's: once a second everything is cold, and costs twice of what a tight
loop shows.

`bare` makes the very calls that our reader makes, over a minute of its cadences, and does nothing
with the answers: the floor.
"""

import gc
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from agent.backends.nvml import fields, processes
from agent.backends.nvml.reader import NvmlReader

MINUTE = 60
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def main(argv: list[str]) -> int:
    sample = {"bare": bare, "reader": reader, "gpustat": gpustat, "nvitop": nvitop}[argv[0]]()
    samples, phase_s = int(argv[1]), float(argv[2])
    sample()  # what is done once
    began = time.process_time()
    for _ in range(samples):
        time.sleep(1.0 - (time.time() - phase_s) % 1.0)
        sample()
    print(1_000 * (time.process_time() - began) / samples)
    return 0


def bare() -> Callable[[], object]:
    minute = itertools.cycle(_calls_of_a_minute())
    gc.freeze()  # a floor does not look through what was noted here

    def sample() -> None:
        for call, arguments in next(minute):
            with suppress(pynvml.NVMLError):
                call(*arguments)

    return sample


def _calls_of_a_minute() -> list[list[Call]]:
    """Calls that the reader makes in each second of a minute, by its own clock."""
    calls: list[Call] = []
    real = {name: member for name, member in vars(pynvml).items()
            if name.startswith("nvml") and callable(member) and not isinstance(member, type)}

    def traced(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            calls.append((call, arguments))
            return call(*arguments)

        return wrapper

    read = _a_reader()
    read()
    for name, call in real.items():
        setattr(pynvml, name, traced(call))
    own = (processes, "rows_of"), (fields, "raw_values")  # around pynvml's functions
    originals = [getattr(module, name) for module, name in own]
    for (module, name), call in zip(own, originals, strict=True):
        setattr(module, name, traced(call))
    try:
        seconds = []
        for _ in range(MINUTE):
            calls.clear()
            read()
            seconds.append(list(calls))
    finally:
        for name, call in real.items():
            setattr(pynvml, name, call)
        for (module, name), call in zip(own, originals, strict=True):
            setattr(module, name, call)
    return seconds


def _a_reader() -> Callable[[], object]:
    seconds = itertools.count(1_000.0)
    return NvmlReader(lambda: next(seconds)).read


reader = _a_reader


def gpustat() -> Callable[[], object]:
    import gpustat  # type: ignore[import-untyped,unused-ignore]

    return lambda: gpustat.new_query().jsonify()


def nvitop() -> Callable[[], object]:
    from nvitop import Device, take_snapshots  # type: ignore[import-untyped,unused-ignore]

    devices = Device.all()
    return lambda: take_snapshots(devices)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
