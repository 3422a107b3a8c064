"""Shared parts of the tests of the nvml backend: a clock they turn, how a value is looked up, and a
board that says everything."""

import random
from typing import Any

from agent.backends.nvml.reader import SLOW_EVERY_S, NvmlReader
from agent.readings import GpuReading, Reading
from gpudeck.contract.wire import GpuState
from gpudeck.measures.metrics import COLUMN, COLUMNS, SLOW, SLOW_COLUMN, Absence
from tests.fakes.nvml import FakeGpu


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def read(reader: NvmlReader, clock: Clock, after_s: float = 1.0) -> Reading:
    clock.now += after_s
    return reader.read()


def gpu_reading(uuid: str, state: GpuState = "ok", **more: float | Absence) -> GpuReading:
    """Idle and empty, but for what is given; all else is unknown."""
    values: dict[str, float | Absence] = {"util_pct": 0.0, "mem_used_bytes": 0.0, **more}
    live, slow = ([values.get(metric.key, Absence.UNKNOWN) for metric in metrics]
                  for metrics in (COLUMNS, SLOW))
    return GpuReading(uuid, state, *_packed(live), *_packed(slow))


def _packed(values: list[float | Absence]) -> tuple[tuple[float, ...], bytes]:
    return (tuple(0.0 if isinstance(number, Absence) else number for number in values),
            bytes(number if isinstance(number, Absence) else Absence.PRESENT for number in values))


def value(gpu: GpuReading, key: str) -> Any:
    """The number, or the Absence."""
    if key in SLOW_COLUMN:
        values, absent, at = gpu.slow, gpu.slow_absent, SLOW_COLUMN[key]
    else:
        values, absent, at = gpu.values, gpu.absent, COLUMN[key]
    return values[at] if absent[at] == Absence.PRESENT else Absence(absent[at])


def fill(gpu: FakeGpu, dice: random.Random) -> None:
    """Set everything that a board could say, no two boards alike."""
    total = int(gpu["mem_total"])
    mem_used, reserved = dice.randrange(2**33), dice.randrange(2**29)
    gpu.update(
        serial=str(dice.getrandbits(40)), vbios="96.00.74.00.01", near_nodes=2,
        mem_used=mem_used, mem_reserved=reserved, bar1_used=dice.randrange(total),
        temp_margin=dice.randint(-5, 60), power_enforced_mw=dice.randint(200_000, 500_000),
        power_limit_mw=dice.randint(500_001, 700_000), video_clock=dice.randint(1, 1_900),
        jpg=dice.randint(0, 100), ofa=dice.randint(0, 100), pcie_gen=dice.randint(1, 6),
        pcie_gen_max=5, pcie_width=dice.choice((8, 16)), pcie_width_max=16,
        pcie_replays=dice.getrandbits(20), fan_rpm=dice.randint(1, 9_000),
        rows_corrected=dice.randint(0, 9), rows_uncorrected=dice.randint(0, 9),
        rows_pending=dice.randint(0, 1), rows_failure=dice.randint(0, 1),
        retired_0=dice.randint(0, 9), retired_1=dice.randint(0, 9),
        retired_pending=dice.randint(0, 1), recovery=dice.randint(0, 5),
        compute_mode=dice.choice((0, 2, 3)), nvlink_tx_kib=dice.getrandbits(45),
        nvlink_rx_kib=dice.getrandbits(45),
        **{f"slowed_{why}_ns": dice.getrandbits(50)
           for why in ("power", "sync", "soft_thermal", "hard_thermal", "brake")},
        **{f"gpm_{number}": dice.uniform(0, 100) for number in (1, 3, 5, 10)},
        **{f"nvlink_{link}": dice.randint(0, 1) for link in range(18)},
        **{f"field_{number}": dice.getrandbits(10) for number in (38, 45, 52, 59)},
    )


def add(gpu: FakeGpu, **more: float) -> None:
    gpu.update({key: int(gpu[key]) + int(amount) for key, amount in more.items()})


def slowly(reader: NvmlReader, clock: Clock) -> tuple[GpuReading, ...]:
    """The next reading that has the slow metrics."""
    return read(reader, clock, SLOW_EVERY_S).gpus


def expected(gpu: FakeGpu) -> dict[str, Any]:
    """Return values by key, of what does not need two readings."""
    return {
        "pstate": gpu["pstate"], "graphics_clock_mhz": gpu["graphics_clock"],
        "video_clock_mhz": gpu["video_clock"], "enc_util_pct": gpu["enc"],
        "dec_util_pct": gpu["dec"], "jpg_util_pct": gpu["jpg"], "ofa_util_pct": gpu["ofa"],
        "mem_reserved_bytes": gpu["mem_reserved"], "bar1_used_bytes": gpu["bar1_used"],
        "temp_margin_c": gpu["temp_margin"],
        "power_limit_w": int(gpu["power_enforced_mw"]) / 1_000,
        "power_limit_set_w": int(gpu["power_limit_mw"]) / 1_000,
        "ecc_corrected": gpu["ecc_corrected_volatile"],
        "ecc_uncorrected": gpu["ecc_uncorrected_volatile"],
        "ecc_corrected_ever": gpu["ecc_corrected_aggregate"],
        "ecc_uncorrected_ever": gpu["ecc_uncorrected_aggregate"],
        "rows_corrected": gpu["rows_corrected"], "rows_uncorrected": gpu["rows_uncorrected"],
        "rows_pending": gpu["rows_pending"], "rows_failed": gpu["rows_failure"],
        "pages_corrected": gpu["retired_0"], "pages_uncorrected": gpu["retired_1"],
        "pages_pending": gpu["retired_pending"], "recovery_action": gpu["recovery"],
        "pcie_gen": gpu["pcie_gen"], "pcie_width": gpu["pcie_width"],
        "pcie_replays": gpu["pcie_replays"],
        "nvlinks_up": sum(int(gpu[f"nvlink_{link}"]) for link in range(18)),
        "nvlink_errors": sum(int(gpu[f"field_{number}"]) for number in (38, 45, 52, 59)),
        "fan_rpm": gpu["fan_rpm"], "compute_mode": gpu["compute_mode"],
        "persistence": gpu["persistence"], "ecc_on": gpu["ecc"], "mig_on": gpu["mig"],
    }
