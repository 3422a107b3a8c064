"""Builds the C fake of libnvidia-ml.so.1 and writes the file it obeys."""

import os
import random
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from uuid import UUID

SOURCE = Path(__file__).with_name("libnvidia-ml.c")


@cache
def build() -> Path:
    """The folder that holds the library; one build per test run."""
    folder = Path(mkdtemp(prefix="gpudeck-fake-nvml-"))
    subprocess.run(
        ["gcc", "-std=gnu11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC",
         "-Wl,-soname,libnvidia-ml.so.1", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)],
        check=True,
    )
    return folder


class FakeNvml:
    """The boards of one machine. Change `gpus` or `lines` and `write`."""

    def __init__(self, path: Path, gpus: int = 2, seed: int | None = None) -> None:
        self.path = path
        self.dice = random.Random(seed)
        self.gpus = [self._random_gpu(number) for number in range(gpus)]
        self.lines: list[str] = []  # process, busy, samples, error, hang, lost
        self.write()

    @property
    def library(self) -> Path:
        return build() / "libnvidia-ml.so.1"

    def env(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(build()), "FAKE_NVML": str(self.path)}

    def write(self) -> None:
        text = ["driver 550.54.15"]
        for number, gpu in enumerate(self.gpus):
            text += [f"gpu {number} {key} {value}" for key, value in gpu.items()]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(text + self.lines) + "\n")
        fresh.replace(self.path)

    def _random_gpu(self, number: int) -> dict[str, str | int | float]:
        dice = self.dice
        total = dice.choice((24, 48, 80, 141)) * 2**30
        return {
            "uuid": f"GPU-{UUID(int=dice.getrandbits(128))}",
            "name": "NVIDIA H100 80GB HBM3",
            "pci": f"00000000:{number + 1:02X}:00.0",
            "util": dice.randint(1, 99),
            "mem_util": dice.randint(1, 99),
            "mem_total": total,
            "mem_used": dice.randrange(2**20, total),
            "temp": dice.randint(20, 90),
            "mem_temp": dice.randint(20, 95),
            "slowdown": 90,
            "shutdown": 95,
            "power_mw": dice.randint(50_000, 700_000),
            "power_limit_mw": 700_000,
            "energy_mj": dice.getrandbits(40),
            "sm_clock": dice.randint(200, 1_980),
            "sm_clock_max": 1_980,
            "mem_clock": 2_619,
            "mem_clock_max": 2_619,
            "throttle": dice.choice((0, 1, 4, 0x20)),
            "pcie_tx": dice.getrandbits(40),
            "pcie_rx": dice.getrandbits(40),
            "sm_active": round(dice.uniform(0, 100), 3),
        }
