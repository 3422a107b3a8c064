"""A board on the C fake whose energy counter follows its power, as a real one's does."""

import threading
import time
from typing import Self

from tests.fakes.nvml import FakeGpu, FakeNvml

EVERY_S = 0.02


class Meter:
    def __init__(self, nvml: FakeNvml, gpu: FakeGpu) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._at = time.monotonic()
        self._joules = float(gpu["energy_mj"]) / 1e3
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def joules(self) -> float:
        with self._lock:
            return self._count()

    def draw(self, power_w: float) -> None:
        with self._lock:
            self._count()
            self._gpu["power_mw"] = round(power_w * 1e3)
            self._nvml.save()

    def hold(self, pid: int, mem_bytes: int, sm_pct: int) -> None:
        """Set the memory and the SM share that a process has here from now on."""
        with self._lock:
            self._gpu.forget(pid).process(pid, mem_bytes, sm_pct=sm_pct)
            self._nvml.save()

    def _count(self) -> float:
        now = time.monotonic()
        self._joules += (now - self._at) * self._gpu["power_mw"] / 1e3
        self._at = now
        self._gpu["energy_mj"] = round(self._joules * 1e3)
        return self._joules

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            with self._lock:
                self._count()
                self._nvml.save()
