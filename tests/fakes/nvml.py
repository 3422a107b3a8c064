"""Builds the C fake of libnvidia-ml.so.1 and writes the file it obeys.

    nvml = FakeNvml(tmp_path, gpus=0)
    gpu = nvml.gpu(util=0, fan=None)            # the rest is random; None: the board has no such
    gpu.process(child.pid, 2**30, sm_pct=40)    # listed until the child exits
    nvml.save()
    subprocess.run(["gpudeck", ...], env=nvml.env())

    gpu["util"] = 100                           # a dict; every running program sees it at once
    gpu.error("nvmlDeviceGetFanSpeed", 999, after=3)
    nvml.save()

The keys are in README.md beside this, with what else can go wrong on purpose.
"""

import ctypes
import os
import random
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

import pynvml
import pytest

from gpudeck.mig.boards import BOARDS

SOURCES = Path(__file__).with_name("libnvidia-ml")
Value = Any  # a number or a text; None: the board has no such
Kind = Literal["compute", "graphics", "mps"]
AfterExit = Literal["goes", "memory_stays", "stays_listed"]
# NVML's number of each profile id of an eight-slice board.
NUMBERS = {19: 0, 14: 1, 9: 2, 5: 3, 0: 4, 20: 7, 15: 9}
XID = 8  # nvmlEventTypeXidCriticalError


@cache
def build(*flags: str) -> Path:
    """The folder that holds the library; one build per test run and set of flags."""
    folder = Path(mkdtemp(prefix="gpudeck-fake-nvml-"))
    subprocess.run(
        ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared",
         "-fPIC", "-pthread", "-Wl,-soname,libnvidia-ml.so.1", *flags,
         "-o", str(folder / "libnvidia-ml.so.1"), *map(str, sorted(SOURCES.glob("*.c")))],
        check=True,
    )
    return folder


class Call(NamedTuple):
    """Call of a setter; `code` 0: accepted."""

    name: str
    gpu: str
    code: int
    arguments: tuple[str, ...]


class FakeGpu(dict[str, Value]):
    """Board: its readings by key, and its lines on processes and faults. A change is seen once the
    FakeNvml it belongs to is saved."""

    def __init__(self, number: str, values: dict[str, Value]) -> None:
        super().__init__(values)
        self.number = number
        self.lines: list[str] = []
        self.instances: list[FakeGpu] = []

    @property
    def uuid(self) -> str:
        return str(self["uuid"])

    def process(
        self, pid: int, mem_bytes: int | None, kind: Kind = "compute", *,
        sm_pct: int | None = None, after_exit: AfterExit = "goes",
    ) -> Self:
        """Add a process that holds memory here; None: the driver does not know how much. A running
        one leaves the list when it exits, and with "memory_stays" its memory does not; one that
        is not running is listed for good."""
        amount = -1 if mem_bytes is None else mem_bytes
        parts = [f"process {self.number} {kind} {pid} {amount}"]
        if (ticks := start_ticks(pid)) is not None:
            parts.append(f"started={ticks}")
        if after_exit != "goes":
            parts.append(after_exit)
        self.lines.append(" ".join(parts))
        if sm_pct is not None:
            self.lines.append(f"busy {self.number} {pid} {sm_pct}")
        return self

    def accounted(
        self, pid: int, *, util_pct: int, mem_util_pct: int, mem_peak_bytes: int, ms: int,
        started_at: float, running: bool = False,
    ) -> Self:
        """Add the accounting of a process, which the driver has once gpu["accounting"] is 1."""
        self.lines.append(f"accounted {self.number} {pid} {util_pct} {mem_util_pct} "
                          f"{mem_peak_bytes} {ms} {int(started_at * 1e6)} {int(running)}")
        return self

    def forget(self, pid: int) -> Self:
        """Let the driver forget this process at last, memory and all."""
        self.lines = [line for line in self.lines
                      if line.split()[0] not in ("process", "busy") or str(pid) not in line.split()]
        return self

    def error(
        self, call: str, code: int, *, after: int | None = None, times: int | None = None
    ) -> Self:
        """Let this call fail here: from the call after the first `after` on, `times` times."""
        bounds = (f" {word} {number}" for word, number in (("after", after), ("times", times))
                  if number is not None)
        self.lines.append(f"error {self.number} {call} {code}{''.join(bounds)}")
        return self

    def hang(self, call: str) -> Self:
        """Let this call not return until the line is gone: `heal`."""
        self.lines.append(f"hang {self.number} {call}")
        return self

    def ignore(self, setter: str) -> Self:
        """Let this setter report success and change nothing."""
        self.lines.append(f"ignore {self.number} {setter}")
        return self

    def lose(self) -> Self:
        """Take the board off the bus: every call about it is GPU_IS_LOST."""
        self.lines.append(f"lost {self.number}")
        return self

    def heal(self) -> Self:
        """Remove its errors, hangs and ignored setters, and put it back on the bus."""
        faults = ("error", "hang", "ignore", "lost")
        self.lines = [line for line in self.lines if line.split()[0] not in faults]
        return self

    def lack(self, *but: str) -> Self:
        """Make every reading unsupported that is not named in `but`."""
        for key in self:
            if key not in ("uuid", *but):
                self[key] = None
        return self

    def renumber(self, number: str) -> None:
        self.number = number
        words = (line.split(" ") for line in self.lines)
        self.lines = [" ".join([first, number, *rest]) for first, _, *rest in words]
        for instance in self.instances:
            instance.renumber(f"{number}:{instance.number.partition(':')[2]}")

    def text(self) -> list[str]:
        lines = [f"gpu {self.number} {key} {value}" for key, value in self.items()
                 if value is not None]
        return lines + self.lines + [line for device in self.instances for line in device.text()]


class FakeNvml:
    """The boards of one machine. Change `gpus`, their readings, or `lines`, and `save`."""

    def __init__(
        self, path: Path, gpus: int = 2, seed: int | None = None, flags: tuple[str, ...] = ()
    ) -> None:
        self.path = path / "nvml.txt" if path.is_dir() else path
        self.flags = flags
        self.dice = random.Random(seed)
        self.driver = "550.54.15"
        self.gpus: list[FakeGpu] = []
        self.lines: list[str] = []  # for all boards: error * CALL CODE, hang CALL
        self._events = count(1)
        for _ in range(gpus):
            self.gpu()
        self.save()

    @property
    def library(self) -> Path:
        return build(*self.flags) / "libnvidia-ml.so.1"

    def env(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(build(*self.flags)),
                "FAKE_NVML": str(self.path)}

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let pynvml of this very process, and of its children, read the fake from now on."""
        self.use_in_children(monkeypatch)
        monkeypatch.setattr(pynvml, "nvmlLib", self.loaded)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def use_in_children(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LD_LIBRARY_PATH", "FAKE_NVML"):
            monkeypatch.setenv(name, self.env()[name])

    @property
    def loaded(self) -> ctypes.CDLL:
        return ctypes.CDLL(str(self.library))

    def gpu(self, **values: Value) -> FakeGpu:
        """Add a board, random but for `values`."""
        number = len(self.gpus)
        gpu = FakeGpu(str(number), {**random_gpu(self.dice, number), **values})
        self.gpus.append(gpu)
        return gpu

    def mig(self, gpu: FakeGpu, profile: str = "", **values: Value) -> FakeGpu:
        """Add a MIG device to this board, of a profile such as "3g.40gb"; it has the readings of a
        real one, which are no utilization, no power and no clocks."""
        gpu.update(mig=1, mig_pending=1, util=None, mem_util=None)
        slot = len(gpu.instances)
        total, slices = int(str(gpu["mem_total"])) // 7, 1
        if profile:
            slices, total = int(profile[0]), int(profile[3:-2]) * 2**30 - 2**28
        readings: dict[str, Value] = {
            "uuid": f"MIG-{UUID(int=self.dice.getrandbits(128))}",
            "name": f"{gpu['name']} MIG {profile}".rstrip(),
            "gi": slot + 1, "ci": 0, "gi_slices": slices, "ci_slices": slices, "sms": 16 * slices,
            "mem_total": total, "mem_used": self.dice.randrange(total),
            "bar1_total": total, "bar1_used": self.dice.randrange(total),
            "sm_active": round(self.dice.uniform(0, 100), 3),
        }
        device = FakeGpu(f"{gpu.number}:{slot}", {**readings, **values})
        gpu.instances.append(device)
        return device

    def splittable(self, gpu: FakeGpu, board: str = "h100-80", *, is_on: bool = True) -> None:
        """Let this board be split into the profiles of that kind. Its profiles have numbers with
        gaps, as a driver's. As from Hopper on, its mode needs no reset: field 184."""
        gpu.update(mig=int(is_on), mig_pending=int(is_on), field_184="ui 1")
        if is_on:
            gpu.update(util=None, mem_util=None)
        for profile in BOARDS[board]:
            memory = int(profile.name[3:].partition("gb")[0]) * 1_024 - 512
            gpu[f"profile_{NUMBERS[profile.id]}"] = " ".join(map(str, (
                profile.id, profile.slices, memory, profile.most, profile.size, profile.name,
                *profile.starts)))

    def instance(self, gpu: FakeGpu, profile: int, start: int, board: str = "h100-80") -> FakeGpu:
        """Add an instance to a splittable board, there from the beginning."""
        name = next(row.name for row in BOARDS[board] if row.id == profile)
        device = self.mig(gpu, name.partition("+")[0])
        device.update(gi_profile=profile, gi_start=start)
        return device

    def xid(self, gpu: FakeGpu, code: int) -> None:
        """Raise an Xid event for every set that has registered by now; saves."""
        self.lines.append(f"event {next(self._events)} {gpu.number} {XID} {code}")
        self.save()

    def save(self) -> None:
        text = [f"driver {self.driver}", f"nvml 12.{self.driver}", "cuda 12040"]
        text += [line for gpu in self.gpus for line in gpu.text()]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(text + self.lines) + "\n")
        # The library looks at the file's times, and a kernel's clock may tick in 4 ms.
        os.utime(fresh, ns=(time.time_ns(), time.time_ns()))
        fresh.replace(self.path)

    write = save

    def calls(self, name: str | None = None) -> list[Call]:
        """Return the calls of setters so far, by all processes."""
        path = Path(f"{self.path}.calls")
        rows = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
        calls = [Call(row[0], row[1], int(row[2]), tuple(row[3:])) for row in rows]
        return [call for call in calls if name in (None, call.name)]

    def unload(self) -> None:
        """Unload the kernel module: no call answers until `load`. Both save."""
        self.lines.append("unloaded")
        self.save()

    def load(self) -> None:
        self.lines = [line for line in self.lines if line != "unloaded"]
        self.save()

    def renumber(self, order: Sequence[int]) -> None:
        """Reorder the boards from now on, under running programs too, as a reload may leave them: a
        handle means another board then. Saves."""
        self.gpus = [self.gpus[index] for index in order]
        for index, gpu in enumerate(self.gpus):
            gpu.renumber(str(index))
        self.save()

    def call_count(self, name: str | None = None) -> int:
        """Return how often this very process called this function, or any."""
        count_calls = self.loaded.fake_calls
        count_calls.argtypes, count_calls.restype = [ctypes.c_char_p], ctypes.c_ulonglong
        return int(count_calls(None if name is None else name.encode()))

    def reload_driver(self) -> None:
        """Lose what setters had set, as with a real reload. Energy counters are up to the test."""
        Path(f"{self.path}.set").unlink(missing_ok=True)


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat: with the pid it names a process for good."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def random_gpu(dice: random.Random, number: int) -> dict[str, Value]:
    """An H100 with neither fan nor display, at work."""
    total = dice.choice((24, 48, 80, 141)) * 2**30
    return {
        "uuid": f"GPU-{UUID(int=dice.getrandbits(128))}",
        "name": "NVIDIA H100 80GB HBM3",
        "pci": f"00000000:{number + 1:02X}:00.0",
        "minor": number,
        "capability_major": 9,
        "capability_minor": 0,
        "util": dice.randint(1, 99),
        "mem_util": dice.randint(1, 99),
        "mem_total": total,
        "mem_used": dice.randrange(2**20, total),
        "bar1_total": 2 * total,
        "bar1_used": dice.randrange(total),
        "temp": dice.randint(20, 90),
        "mem_temp": dice.randint(20, 95),
        "slowdown": 90,
        "shutdown": 95,
        "mem_temp_max": 105,
        "power_mw": dice.randint(50_000, 700_000),
        "power_limit_mw": 700_000,
        "power_default_mw": 700_000,
        "power_min_mw": 200_000,
        "power_max_mw": 700_000,
        "energy_mj": dice.getrandbits(40),
        "graphics_clock": dice.randint(200, 1_980),
        "sm_clock": dice.randint(200, 1_980),
        "sm_clock_max": 1_980,
        "mem_clock": 2_619,
        "mem_clock_max": 2_619,
        "throttle": dice.choice((0, 1, 4, 0x20)),
        "pcie_tx": dice.getrandbits(40),
        "pcie_rx": dice.getrandbits(40),
        "sm_active": round(dice.uniform(0, 100), 3),
        "enc": dice.randint(0, 100),
        "dec": dice.randint(0, 100),
        "pstate": dice.randint(0, 8),
        "persistence": dice.randint(0, 1),
        "compute_mode": 0,
        "accounting": 0,
        "ecc": 1,
        "ecc_pending": 1,
        "ecc_corrected_volatile": dice.getrandbits(8),
        "ecc_uncorrected_volatile": dice.getrandbits(4),
        "ecc_corrected_aggregate": dice.getrandbits(16),
        "ecc_uncorrected_aggregate": dice.getrandbits(8),
        "mig": 0,
        "mig_pending": 0,
    }
