"""Health, limits, links and modes from NVML: what is read every 15 s, on the C fake."""

import random
import time
from pathlib import Path

import pytest

from agent.backends.metric_row import MonotonicCounter
from agent.backends.nvml.gpu import UNSEEN_MIN_BYTES
from agent.backends.nvml.reader import NvmlReader
from gpudeck.contract.wire import GpuFacts, Inventory, decode_from_agent, encode
from gpudeck.measures.metrics import SLOW, SLOW_COLUMN, SLOW_WIDTH, Absence
from tests.fakes.nvml import FakeNvml
from tests.unit.readings import Clock, add, expected, fill, read, slowly, value

S_NS = 10**9


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    for gpu in fake.gpus:
        fill(gpu, random.Random(random.random()))
    fake.save()
    fake.use(monkeypatch)
    return fake


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_every_slow_metric_is_what_the_board_says(nvml: FakeNvml, clock: Clock) -> None:
    reader = NvmlReader(clock)
    read(reader, clock)
    slowed = {}
    for board in nvml.gpus:
        board.update(ecc_uncorrected_volatile=random.getrandbits(30), recovery=random.randint(0, 5))
        slowed[board.uuid] = [random.uniform(0, 100) for _ in range(5)]
        add(board, nvlink_tx_kib=15 * 2**20, nvlink_rx_kib=15 * 2**21, **{
            f"slowed_{why}_ns": share / 100 * 15 * S_NS for why, share in zip(
                ("power", "sync", "soft_thermal", "hard_thermal", "brake"),
                slowed[board.uuid], strict=True)})
    nvml.save()
    time.sleep(0.11)  # GPM wants its two samples that far apart, by the driver's own clock
    for gpu, board in zip(slowly(reader, clock), nvml.gpus, strict=True):
        numbers = expected(board) | {
            "gr_active_pct": board["gpm_1"], "sm_occupancy_pct": board["gpm_3"],
            "tensor_active_pct": board["gpm_5"], "dram_active_pct": board["gpm_10"],
            "nvlink_tx_bytes_per_s": 2**30, "nvlink_rx_bytes_per_s": 2**31,
            "mem_unseen_bytes": seen_as(int(board["mem_used"])),
        } | {f"slowed_{why}_pct": share for why, share in zip(
            ("power", "sync", "soft_thermal", "hard_thermal", "brake"), slowed[gpu.uuid],
            strict=True)}
        assert set(numbers) == set(SLOW_COLUMN)
        assert {key: value(gpu, key) for key in numbers} == pytest.approx(numbers, rel=1e-6)


def seen_as(bytes_: int) -> int:
    return bytes_ if bytes_ >= UNSEEN_MIN_BYTES else 0


def test_slow_metrics_are_read_every_15_s_in_the_call_of_the_fast_ones(
    nvml: FakeNvml, clock: Clock
) -> None:
    reader = NvmlReader(clock)
    before = nvml.call_count("nvmlDeviceGetFieldValues")
    slow_reads = [bool(read(reader, clock).gpus[0].slow) for _ in range(31)]
    assert [second for second, slow in enumerate(slow_reads) if slow] == [0, 15, 30]
    # Once more a GPU at first: for what the first answer said that it does not have.
    assert nvml.call_count("nvmlDeviceGetFieldValues") - before == 2 * 31


def test_a_second_costs_few_calls(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 20, the monitor is the load: per GPU and second, all cadences together."""
    reader = NvmlReader(clock)
    for _ in range(15):
        read(reader, clock)
    before = nvml.call_count()
    for _ in range(60):
        read(reader, clock)
    assert (nvml.call_count() - before) / 60 / len(nvml.gpus) < 17


BARE = {"name", "temp", "mem_total", "mem_used"}
OF_TWO = ("slowed_", "nvlink_tx", "nvlink_rx", "gr_active", "sm_occ", "tensor", "dram_active")


def test_what_a_board_lacks_is_unsupported_and_not_asked_again(
    nvml: FakeNvml, clock: Clock
) -> None:
    """Pitfalls 1 and 3. The other board reports all of it, in the same reading."""
    nvml.gpus[0].lack(*BARE)
    nvml.save()
    reader = NvmlReader(clock)
    read(reader, clock)
    time.sleep(0.11)
    first, second = slowly(reader, clock)
    supported = {"mem_reserved_bytes", "mem_unseen_bytes"}
    for metric in SLOW:
        assert (value(first, metric.key) is Absence.UNSUPPORTED) == (metric.key not in supported)
        assert not isinstance(value(second, metric.key), Absence), metric.key
    before = {name: nvml.call_count(name) for name in (
        "nvmlDeviceGetPerformanceState", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetMigMode")}
    slowly(reader, clock)
    after = {name: nvml.call_count(name) - count for name, count in before.items()}
    assert after == {"nvmlDeviceGetPerformanceState": 1, "nvmlDeviceGetNvLinkState": 0,
                     "nvmlDeviceGetRemappedRows": 0, "nvmlDeviceGetMigMode": 2}
    missing = read(reader, clock).facts[0].missing
    assert missing["recovery_action"] == "unsupported"
    assert set(missing) >= set(SLOW_COLUMN) - supported


BY_CALL = {
    "ecc_on": "nvmlDeviceGetEccMode", "ecc_corrected": "nvmlDeviceGetTotalEccErrors",
    "ecc_uncorrected_ever": "nvmlDeviceGetTotalEccErrors",
    "rows_uncorrected": "nvmlDeviceGetRemappedRows", "rows_failed": "nvmlDeviceGetRemappedRows",
    "pages_corrected": "nvmlDeviceGetRetiredPages_v2",
    "pages_uncorrected": "nvmlDeviceGetRetiredPages_v2",
    "pages_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    "pcie_replays": "nvmlDeviceGetPcieReplayCounter", "nvlinks_up": "nvmlDeviceGetNvLinkState",
}


def test_a_driver_without_field_values_is_asked_call_by_call(
    nvml: FakeNvml, clock: Clock
) -> None:
    """trap A.2: fall back per field."""
    nvml.lines = ["error * nvmlDeviceGetFieldValues 13"]
    for board in nvml.gpus:
        board.update({f"nvlink_{link}_errors_{kind}": random.getrandbits(8)
                      for link in range(18) for kind in range(4)})
    nvml.save()
    gpu, fake = slowly(NvmlReader(clock), clock)[1], nvml.gpus[1]
    numbers = expected(fake)
    assert {key: value(gpu, key) for key in BY_CALL} == {key: numbers[key] for key in BY_CALL}
    assert value(gpu, "nvlink_errors") == sum(
        fake[f"nvlink_{link}_errors_{kind}"] for link in range(18) for kind in range(4))
    assert value(gpu, "recovery_action") is Absence.UNSUPPORTED


@pytest.mark.parametrize(("verdict", "absence", "asked_again"), [
    ("error 3", Absence.UNSUPPORTED, False), ("error 2", Absence.UNSUPPORTED, False),
    ("error 4", Absence.DENIED, False), ("error 999", Absence.UNKNOWN, True),
    ("type 9 2", Absence.UNKNOWN, True),
])
def test_each_field_has_its_own_verdict(
    nvml: FakeNvml, clock: Clock, verdict: str, absence: Absence, asked_again: bool
) -> None:
    """trap A.2: the call succeeds if any field did; a type that nobody knows is not a number."""
    nvml.gpus[0]["field_230"] = verdict
    nvml.save()
    reader = NvmlReader(clock)
    gpu = slowly(reader, clock)[0]
    assert value(gpu, "recovery_action") is absence
    assert value(gpu, "ecc_corrected") == nvml.gpus[0]["ecc_corrected_volatile"]
    del nvml.gpus[0]["field_230"]
    nvml.save()
    now = value(slowly(reader, clock)[0], "recovery_action")
    assert now == (nvml.gpus[0]["recovery"] if asked_again else absence)


def test_what_is_denied_is_asked_again_rarely(nvml: FakeNvml, clock: Clock) -> None:
    nvml.gpus[0].error("nvmlDeviceGetComputeMode", 4)
    nvml.save()
    reader = NvmlReader(clock)
    assert value(slowly(reader, clock)[0], "compute_mode") is Absence.DENIED
    nvml.gpus[0].heal()
    nvml.save()
    before = nvml.call_count("nvmlDeviceGetComputeMode")
    assert value(slowly(reader, clock)[0], "compute_mode") is Absence.DENIED
    assert nvml.call_count("nvmlDeviceGetComputeMode") - before == 1  # the other board
    later = value(read(reader, clock, 601.0).gpus[0], "compute_mode")
    assert not isinstance(later, Absence)  # DENIED equals 2, which is a mode too
    assert later == nvml.gpus[0]["compute_mode"]


def test_a_bad_argument_after_good_ones_is_no_missing_feature(
    nvml: FakeNvml, clock: Clock
) -> None:
    """trap A.1: a handle that a reset made invalid gives InvalidArgument for everything."""
    reader = NvmlReader(clock)
    slowly(reader, clock)
    nvml.gpus[0].error("nvmlDeviceGetPerformanceState", 2)
    nvml.save()
    before = nvml.call_count("nvmlDeviceGetHandleByUUID")
    assert value(slowly(reader, clock)[0], "pstate") is Absence.UNKNOWN
    nvml.gpus[0].heal()
    nvml.save()
    read(reader, clock)
    assert nvml.call_count("nvmlDeviceGetHandleByUUID") - before == 1
    assert value(slowly(reader, clock)[0], "pstate") == nvml.gpus[0]["pstate"]


def test_what_mig_takes_away_comes_back_with_it(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 7: under MIG a board has no encoder to speak of."""
    reader = NvmlReader(clock)
    slowly(reader, clock)
    encoder = nvml.gpus[0].pop("enc")
    nvml.save()
    assert value(slowly(reader, clock)[0], "enc_util_pct") is Absence.UNSUPPORTED
    nvml.gpus[0]["enc"] = encoder
    nvml.save()
    read(reader, clock, 60.0)
    assert value(slowly(reader, clock)[0], "enc_util_pct") == encoder


@pytest.mark.parametrize(("key", "fake_key", "raw"), [
    ("pstate", "pstate", 32), ("recovery_action", "recovery", 77),
    ("ecc_corrected", "ecc_corrected_volatile", 9223372036854775794),
    ("pcie_gen", "pcie_gen", 2**32 - 1), ("power_limit_w", "power_enforced_mw", 2**32 - 1),
    ("mem_reserved_bytes", "mem_reserved", 2**63), ("temp_margin_c", "temp_margin", -4_000),
    ("enc_util_pct", "enc", 101), ("compute_mode", "compute_mode", 9),
])
def test_sentinels_are_unknown(
    nvml: FakeNvml, clock: Clock, key: str, fake_key: str, raw: int
) -> None:
    """Pitfall 1: 9223372036854775794 is what dcgm-exporter's README shows."""
    nvml.gpus[0][fake_key] = raw
    nvml.save()
    first, second = slowly(NvmlReader(clock), clock)
    assert value(first, key) is Absence.UNKNOWN
    assert value(second, key) == pytest.approx(expected(nvml.gpus[1])[key])


def test_zero_is_a_number(nvml: FakeNvml, clock: Clock) -> None:
    """Pitfall 2: P0, no errors, an encoder at rest."""
    keys = [key for key in nvml.gpus[0] if key not in ("uuid", "name", "pci", "serial", "vbios",
            "mem_total", "near_nodes", "sm_active") and not key.startswith("gpm_")]
    nvml.gpus[0].update(dict.fromkeys(keys, 0))
    nvml.save()
    gpu = slowly(NvmlReader(clock), clock)[0]
    assert {value(gpu, key) for key in expected(nvml.gpus[0])} == {0}


def test_temperature_margin_of_boards_that_only_say_degrees(nvml: FakeNvml, clock: Clock) -> None:
    nvml.gpus[0].update(temp_margin=None, slowdown=88, temp=61)
    nvml.save()
    reading = read(NvmlReader(clock), clock)
    assert value(reading.gpus[0], "temp_margin_c") == 27
    assert reading.facts[0].temp_slowdown_c == 88


def test_thresholds_of_boards_that_only_say_margins(nvml: FakeNvml, clock: Clock) -> None:
    """trap A.2: from Ada on limits are relative, and can be negative."""
    nvml.gpus[0].update(slowdown=None, shutdown=None, temp=50, temp_margin=37, slowdown_limit=-2,
                        shutdown_limit=-5)
    nvml.save()
    reader = NvmlReader(clock)
    facts = read(reader, clock).facts[0]
    assert (facts.temp_slowdown_c, facts.temp_shutdown_c) == (89, 92)
    nvml.gpus[0].update(temp=52, temp_margin=36)  # not of one moment: a fact must not tremble
    nvml.save()
    assert read(reader, clock, 61.0).facts[0] == facts


@pytest.mark.parametrize("margin_c", [-3, 0, 12])
def test_the_margin_that_memory_needs(nvml: FakeNvml, clock: Clock, margin_c: int) -> None:
    """Field 195. It is of the GPU's own margin; the memory's degrees do not follow from it."""
    nvml.gpus[0].update(mem_temp_max=None, memory_limit=margin_c)
    nvml.gpus[1].update(mem_temp_max=95, memory_limit=None)
    nvml.save()
    relative, absolute = read(NvmlReader(clock), clock).facts
    assert (relative.mem_temp_max_c, relative.mem_margin_min_c) == (None, margin_c)
    assert (absolute.mem_temp_max_c, absolute.mem_margin_min_c) == (95, None)
    nvml.gpus[0]["memory_limit"] = 2**31 - 1
    nvml.save()
    assert read(NvmlReader(clock), clock).facts[0].mem_margin_min_c is None


def test_facts_are_what_the_board_says(nvml: FakeNvml, clock: Clock) -> None:
    board = nvml.gpus[1]
    board.update(near_nodes=2**3 + 2**5, power_min_mw=100_000, power_max_mw=650_000,
                 power_default_mw=600_000, mem_temp_max=random.randint(90, 110))
    nvml.save()
    reader = NvmlReader(clock)
    facts = read(reader, clock).facts[1]
    board_facts = GpuFacts(
        uuid=board.uuid, index=1, name=board["name"], minor=board["minor"], serial=board["serial"],
        vbios=board["vbios"], compute_capability="9.0", numa_node=3, pcie_gen_max=5,
        pcie_width_max=16, power_limit_min_w=100, power_limit_max_w=650,
        power_limit_default_w=600, pci_bus_id=board["pci"], mem_total_bytes=board["mem_total"],
        power_limit_w=board["power_enforced_mw"] / 1_000, sm_clock_max_mhz=1_980,
        mem_clock_max_mhz=2_619, temp_slowdown_c=90, temp_shutdown_c=95, missing=facts.missing,
        mem_temp_max_c=board["mem_temp_max"], accounting_on=False,
    )
    assert facts == board_facts
    # A call that fails once does not make a new Inventory.
    nvml.gpus[1].error("nvmlDeviceGetSerial", 999).error("nvmlDeviceGetTemperatureThreshold", 999)
    nvml.save()
    assert read(reader, clock, 61.0).facts[1] == facts


def test_facts_hold_no_sentinel(nvml: FakeNvml, clock: Clock) -> None:
    """The hub would refuse the whole Inventory."""
    nvml.gpus[0].update(minor=2**32 - 1, power_max_mw=2**32 - 1, pcie_gen_max=2**32 - 1,
                        slowdown=2**32 - 1, numa_node=-1)
    nvml.save()
    reading = read(NvmlReader(clock), clock)
    inventory = Inventory(1, reading.facts, reading.links)
    assert decode_from_agent(encode(inventory)) == inventory
    facts = reading.facts[0]
    assert (facts.minor, facts.power_limit_max_w, facts.pcie_gen_max, facts.temp_slowdown_c,
            facts.numa_node) == (None,) * 5


# Counters


def test_energy_that_falls_is_never_negative(nvml: FakeNvml, clock: Clock) -> None:
    """trap A.2 energy: it begins again when the driver is loaded."""
    reader = NvmlReader(clock)
    read(reader, clock)
    for board in nvml.gpus:
        board["energy_mj"] = random.randrange(5_000)
    nvml.save()
    for gpu, fake in zip(read(reader, clock).gpus, nvml.gpus, strict=True):
        assert value(gpu, "energy_j") == pytest.approx(int(fake["energy_mj"]) / 1_000)


@pytest.mark.parametrize("before", [3 * S_NS, 2**40])
def test_slowed_time_that_begins_again_is_unknown_once(
    nvml: FakeNvml, clock: Clock, before: int
) -> None:
    """trap A.6: ns counters restart from 0. Below 2**32 it must not be taken for one that wraps:
    that would be 28 % of throttling that never was."""
    nvml.gpus[0]["slowed_power_ns"] = before
    nvml.save()
    reader = NvmlReader(clock)
    read(reader, clock)
    nvml.gpus[0]["slowed_power_ns"] = 5
    nvml.save()
    assert value(slowly(reader, clock)[0], "slowed_power_pct") is Absence.UNKNOWN
    add(nvml.gpus[0], slowed_power_ns=6 * S_NS)
    nvml.save()
    assert value(slowly(reader, clock)[0], "slowed_power_pct") == pytest.approx(40)


@pytest.mark.parametrize(("slowed_s", "share_pct"), [
    (10.0, 100.0), (10.3, 100.0), (11.0, Absence.UNKNOWN), (0.0, 0.0),
])
def test_a_share_of_time_ends_at_the_whole(slowed_s: float, share_pct: float | Absence) -> None:
    counter = MonotonicCounter()
    counter.share_pct(7, 64, 100.0)
    assert counter.share_pct(7 + int(slowed_s * S_NS), 64, 110.0) == share_pct


def test_a_gpu_that_was_reset_begins_again(nvml: FakeNvml, clock: Clock) -> None:
    """Counters restart, and what it refused may be granted now."""
    nvml.gpus[0]["field_230"] = "error 3"
    temp_c = nvml.gpus[0].pop("temp")
    nvml.save()
    reader = NvmlReader(clock)
    assert value(read(reader, clock).gpus[0], "temp_c") is Absence.UNSUPPORTED
    nvml.gpus[0].lose()
    nvml.save()
    assert read(reader, clock).gpus[0].state == "lost"
    nvml.gpus[0].heal()
    del nvml.gpus[0]["field_230"]
    nvml.gpus[0]["temp"] = temp_c
    add(nvml.gpus[0], pcie_tx=2**50, nvlink_tx_kib=2**50)
    nvml.save()
    before = nvml.call_count("nvmlDeviceGetHandleByUUID")
    back = read(reader, clock, 14.9).gpus[0]
    assert back.state == "lost"
    back = read(reader, clock, 0.2).gpus[0]
    assert (back.state, len(back.slow)) == ("ok", SLOW_WIDTH)
    assert nvml.call_count("nvmlDeviceGetHandleByUUID") - before == 1  # the old handle is worthless
    assert value(back, "recovery_action") == nvml.gpus[0]["recovery"]
    assert value(back, "temp_c") == float(temp_c)
    assert value(back, "nvlink_tx_bytes_per_s") is Absence.UNKNOWN
    assert value(back, "pcie_tx_bytes_per_s") is Absence.UNKNOWN


def test_no_call_that_waits_is_made(nvml: FakeNvml, clock: Clock) -> None:
    """trap A.2 PCIe throughput: each such call measures for 20 ms before it answers."""
    reader = NvmlReader(clock)
    for _ in range(17):
        read(reader, clock)
    assert nvml.call_count("nvmlDeviceGetCurrPcieLinkWidth") > 0
    assert nvml.call_count("nvmlDeviceGetPcieThroughput") == 0


def test_a_driver_that_does_not_tell_its_reserve_apart(nvml: FakeNvml, clock: Clock) -> None:
    """trap A.2 memory v2: in the first version the reserve is in use like all else, so memory
    that no process holds is not known."""
    nvml.lines = ["error * nvmlDeviceGetMemoryInfo_v2 13"]
    nvml.save()
    gpu, board = slowly(NvmlReader(clock), clock)[0], nvml.gpus[0]
    assert value(gpu, "mem_used_bytes") == board["mem_used"] + board["mem_reserved"]
    assert value(gpu, "mem_reserved_bytes") is Absence.UNSUPPORTED
    assert value(gpu, "mem_unseen_bytes") is Absence.UNSUPPORTED
