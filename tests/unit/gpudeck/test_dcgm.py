"""Rules and dashboards for dcgm-exporter: what they need is served or documented as missing."""

import random
import re
from pathlib import Path

import pytest

from gpudeck.measures.throttled_time import VIOLATIONS
from gpudeck.prometheus.dcgm import (
    DRIVER,
    NAMES,
    NAN,
    NVLINK,
    RECEIVED,
    SENT,
    ExportedGpus,
    families,
)

PAGE = (Path(__file__).parents[3] / "docs/prometheus.md").read_text()
# On by default in its etc/default-counters.csv, of 2023 and of today.
BY_DEFAULT = """
DEV_SM_CLOCK DEV_MEM_CLOCK DEV_MEMORY_TEMP DEV_GPU_TEMP DEV_POWER_USAGE DEV_TOTAL_ENERGY_CONSUMPTION
DEV_PCIE_REPLAY_COUNTER DEV_GPU_UTIL DEV_MEM_COPY_UTIL DEV_ENC_UTIL DEV_DEC_UTIL DEV_XID_ERRORS
DEV_FB_FREE DEV_FB_USED DEV_FB_RESERVED DEV_NVLINK_BANDWIDTH_TOTAL DEV_VGPU_LICENSE_STATUS
DEV_UNCORRECTABLE_REMAPPED_ROWS DEV_CORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_FAILURE DRIVER_VERSION
PROF_GR_ENGINE_ACTIVE PROF_PIPE_TENSOR_ACTIVE PROF_DRAM_ACTIVE PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES
"""
# Of the rules that AWS ships for HyperPod, besides.
IN_RULES = """
DEV_ECC_DBE_VOL_TOTAL DEV_POWER_VIOLATION DEV_THERMAL_VIOLATION
DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
"""
# In that file, switched off.
OFF = """
DEV_RETIRED_SBE DEV_RETIRED_DBE DEV_RETIRED_PENDING DEV_SYNC_BOOST_VIOLATION
DEV_BOARD_LIMIT_VIOLATION DEV_LOW_UTIL_VIOLATION DEV_RELIABILITY_VIOLATION
PROF_PIPE_FP16_ACTIVE PROF_PIPE_FP32_ACTIVE PROF_PIPE_FP64_ACTIVE
"""
NVLINK_ERRORS = "DEV_NVLINK_…_ERROR_COUNT_TOTAL"  # as the page names these four


SECTION = PAGE.partition("## What is not served")[2].partition("\n## ")[0]


def row_of(name: str) -> str:
    """Return the name under which the page lists a metric of dcgm-exporter."""
    return NVLINK_ERRORS if name.endswith("_ERROR_COUNT_TOTAL") else name


def test_what_is_asked_for_is_served_or_said_not_to_be() -> None:
    """Found by examiners: of seven shared rules three were over metrics that are not there, and
    such a rule is silent for good."""
    for name in (BY_DEFAULT + IN_RULES + OFF).split():
        is_named = f"`DCGM_FI_{row_of(name)}`" in SECTION
        assert (f"DCGM_FI_{name}" in NAMES | {DRIVER}) != is_named, name


def test_the_page_lists_exactly_what_is_not_served() -> None:
    first_cells = [line.split(" | ")[0] for line in SECTION.splitlines() if line.startswith("| `")]
    listed = {name for cell in first_cells for name in re.findall(r"`(\w+_…?\w*)`", cell)}
    absent = {f"DCGM_FI_{row_of(name)}" for name in (BY_DEFAULT + IN_RULES + OFF).split()
              if f"DCGM_FI_{name}" not in NAMES | {DRIVER}}
    assert listed == absent | {"DCGM_EXP_…"}
    missing = [name for name in BY_DEFAULT.split() if f"DCGM_FI_{name}" in absent]
    assert missing == ["DEV_VGPU_LICENSE_STATUS"], "as the page says, one that is on by default"


def test_nvlink_is_the_rate_that_dcgm_gives() -> None:
    """DCGM's ReadAndCacheNvLinkBandwidth: KiB of both directions, by second, divided by 1,000."""
    transmitted, received = random.uniform(1, 1e12), random.uniform(1, 1e12)
    gpus = ExportedGpus(['gpu="0"', 'gpu="1"'], [-1, -1], [False, False], [NAN, NAN], [NAN, NAN],
                        [[NAN, NAN]] * len(VIOLATIONS))
    columns = {SENT: [transmitted, transmitted], RECEIVED: [received, NAN]}
    [text] = families(gpus, columns, frozenset({NVLINK}))
    assert f"# TYPE {NVLINK} gauge\n" in text
    [(gpu, value)] = re.findall(r'gpu="(\d)"} (\S+)', text)
    assert gpu == "0", "half of a sum is none"
    assert float(value) == pytest.approx((transmitted + received) / 1_024_000)
    assert families(gpus, {SENT: [transmitted, transmitted]}, frozenset({NVLINK})) == []
