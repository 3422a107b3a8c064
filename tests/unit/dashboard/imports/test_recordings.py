"""Files of other programs: what is read of them, what is listed, what is refused."""

import gzip
import json
import random
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from dashboard.imports.core.cells import BadCellError, number
from dashboard.imports.core.columns import MIB, ColumnMapError, parse_map, recognise
from dashboard.imports.core.recording import (
    ImportOptions,
    ImportProblems,
    ImportRefusedError,
    RecordedGpus,
)
from dashboard.imports.core.seconds import RecordedRow, SecondsOfGpus
from dashboard.imports.files import recording
from gpudeck.measures.metrics import Absence

BERLIN = ZoneInfo("Europe/Berlin")
UUIDS = ("GPU-5d1e0b3c-0000-4000-8000-000000000001", "GPU-5d1e0b3c-0000-4000-8000-000000000002")


def read(path: Path, **options: Any) -> tuple[list[RecordedRow], ImportProblems]:
    problems = ImportProblems()
    rows, _ = recording(path, None, ImportOptions(**options)).rows(RecordedGpus(), problems)
    return list(rows), problems


def log_file(tmp_path: Path, text: str | bytes, name: str = "log.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# As nvidia-smi writes it: `, ` between cells, units in header and cells, local time.
HEADER = ("timestamp, name, index, uuid, pci.bus_id, utilization.gpu [%], memory.used [MiB], "
          "memory.total [MiB], power.draw [W], clocks.current.sm [MHz], pstate, "
          "clocks_event_reasons.active, fan.speed [%], driver_version")


def smi_row(at: str, gpu: int, util: int, mem: int, power: float, unit: bool = True) -> str:
    pct, mib, w, mhz = (" %", " MiB", " W", " MHz") if unit else ("",) * 4
    return (f"{at}, NVIDIA H100 80GB HBM3, {gpu}, {UUIDS[gpu]}, 00000000:0{gpu}:00.0, "
            f"{util}{pct}, {mem}{mib}, 81559{mib}, {power:.2f}{w}, 1980{mhz}, P0, "
            f"0x0000000000000004, [N/A], 580.95.05")


@pytest.mark.parametrize("unit", [True, False], ids=["units", "nounits"])
def test_a_log_of_nvidia_smi(tmp_path: Path, unit: bool) -> None:
    util, mem, power = random.randint(1, 99), random.randint(100, 80_000), random.uniform(60, 700)
    lines = [HEADER, smi_row("2026/05/17 10:00:00.125", 0, util, mem, power, unit),
             smi_row("2026/05/17 10:00:00.126", 1, 100 - util, mem, power, unit)]
    rows, problems = read(log_file(tmp_path, "\n".join(lines)), node="n1", zone=BERLIN)
    at = datetime(2026, 5, 17, 8, 0, 0, 125_000, UTC).timestamp()
    assert [row.at for row in rows] == pytest.approx([at, at + 0.001])
    assert rows[0].values == {
        "util_pct": util, "mem_used_bytes": mem * MIB, "power_w": pytest.approx(power, abs=0.005),
        "sm_clock_mhz": 1980, "pstate": 0, "throttle_bits": 4, "fan_pct": Absence.UNSUPPORTED}
    gpu = rows[1].gpu
    assert (gpu.host, gpu.key, gpu.index, gpu.name, gpu.mem_total_bytes) == (
        "n1", UUIDS[1], 1, "NVIDIA H100 80GB HBM3", 81_559 * MIB)
    assert list(problems.unknown_columns) == ["driver_version"]
    assert problems.bad_rows == 0


def test_what_breaks_logs(tmp_path: Path) -> None:
    """Started again in between, cut at its end, zeros of a power loss, written by PowerShell."""
    good = [smi_row(f"2026/05/17 10:00:0{at}.000", 0, 10 + at, 100, 70) for at in range(4)]
    text = "\r\n".join([HEADER, good[0], HEADER, good[1], "\0\0\0" + good[2], "", good[3][:40]])
    rows, problems = read(log_file(tmp_path, text.encode("utf-16")), node="n1", zone=UTC)
    assert [row.values["util_pct"] for row in rows] == [10, 11, 12]
    assert problems.listed == [(7, "has 2 of 14 columns")]


def test_one_bad_cell_leaves_the_rest_of_its_row(tmp_path: Path) -> None:
    text = ("t,index,util_pct,temp_c\n1780000000,0,37,1e9\n1780000001,0,spam,40\n"
            "yesterday,0,1,1\n1780000002,,1,1\n1780000003,0,5,41\n")
    rows, problems = read(log_file(tmp_path, text), node="n1")
    assert [row.values for row in rows] == [
        {"util_pct": 37, "temp_c": Absence.UNKNOWN}, {"util_pct": Absence.UNKNOWN, "temp_c": 40},
        {"util_pct": 5, "temp_c": 41}]
    assert problems.listed == [
        (2, "temp_c is 1e+09, outside -40 to 150 °C"), (3, "util_pct is 'spam', not a number"),
        (4, "'yesterday' is not a time"), (5, "it does not say its GPU")]


@pytest.mark.parametrize(("text", "options", "why"), [
    ("timestamp, utilization.gpu [%]\n2026/05/17 10:00:00.000, 5 %\n", {}, "--gpu 0"),
    ("index, utilization.gpu [%]\n0, 5 %\n", {}, "no column says the time"),
    ("timestamp, index, utilization.gpu [%]\n2026/05/17 10:00:00.000, 0, 5 %\n", {}, "--tz"),
    ("when,card,load\n1780000000,0,5\n", {}, "--map"),
    ("t,index,util_pct\n1780000000,0,5\n", {"node": None}, "--node"),
])
def test_refused_with_what_to_give(tmp_path: Path, text: str, options: dict[str, Any], why: str
                                   ) -> None:
    with pytest.raises(ImportRefusedError, match=why):
        read(log_file(tmp_path, text), **{"node": "n1"} | options)


def test_rows_in_order_and_rows_of_one(tmp_path: Path) -> None:
    text = "t,util_pct\n" + "".join(f"{1_780_000_000 + at // 2},{at}\n" for at in range(6))
    rows, _ = read(log_file(tmp_path, text), node="n1", in_order=2)
    assert [(row.gpu.key, row.values["util_pct"]) for row in rows] == [
        (str(at % 2), at) for at in range(6)]
    rows, _ = read(log_file(tmp_path, text), node="n1", gpu="7")
    assert {(row.gpu.key, row.gpu.index) for row in rows} == {("7", 7)}
    with_names = "t,name,util_pct\n1780000000,A,1\n1780000000,B,1\n1780000001,B,1\n"
    with pytest.raises(ImportRefusedError, match="same order"):
        read(log_file(tmp_path, with_names), node="n1", in_order=2)


def test_map_says_what_is_not_known(tmp_path: Path) -> None:
    text = "when;card;watts;mem;load\n2026-05-17T10:00:00+02:00;a;0.3;2;0.5\n"
    column_map = parse_map(["when=time", "card=gpu", "watts=power_w:kW", "mem=mem_used_bytes:GiB",
                            "load=util_pct:ratio"])
    [row], problems = read(log_file(tmp_path, text), node="n1", mapped=column_map)
    assert row.values == {"power_w": 300, "mem_used_bytes": 2 * 2**30, "util_pct": 50}
    assert row.at == datetime(2026, 5, 17, 8, tzinfo=UTC).timestamp()
    assert not problems.unknown_columns
    rows, _ = read(log_file(tmp_path, "1780000000,3,42\n"), node="n1", has_header=False,
                   mapped=parse_map(["1=time", "2=index", "3=util_pct"]))
    assert [(row.gpu.key, row.values) for row in rows] == [("3", {"util_pct": 42})]
    for wrong in ("x", "x=spam", "x=power_w:F", "=util_pct"):
        with pytest.raises(ColumnMapError):
            parse_map([wrong])


def test_parquet_and_our_own_export(tmp_path: Path) -> None:
    """Rows may come in any order: GPU by GPU, as in exports."""
    at = datetime(2026, 5, 17, 8, tzinfo=timezone(timedelta(hours=2)))
    frame = pd.DataFrame({
        "time": [at + timedelta(seconds=s) for s in (0, 1, 0, 1)], "gpu": ["a", "a", "b", "b"],
        "host": ["n7"] * 4, "util_pct_mean": [1.0, 2.0, None, 4.0], "spam": ["x"] * 4})
    path = tmp_path / "out.parquet"
    frame.to_parquet(path)
    rows, problems = read(path)
    assert [(row.gpu.host, row.gpu.key, row.at - at.timestamp(), row.values) for row in rows] == [
        ("n7", "a", 0, {"util_pct": 1}), ("n7", "a", 1, {"util_pct": 2}),
        ("n7", "b", 1, {"util_pct": 4})]
    assert list(problems.unknown_columns) == ["spam"]
    (tmp_path / "torn.parquet").write_bytes(path.read_bytes()[:200])
    with pytest.raises(ImportRefusedError, match="Parquet"):
        read(tmp_path / "torn.parquet")


def test_a_range_of_prometheus(tmp_path: Path) -> None:
    labels = {"Hostname": "n3", "gpu": "1", "UUID": UUIDS[1], "modelName": "H100"}
    answer = {"status": "success", "warnings": ["partial"], "data": {"result": [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", **labels},
         "values": [[1780000000.123, "37"], [1780000001.123, "NaN"], [1780000002.123, "41"]]},
        {"metric": {"__name__": "DCGM_FI_PROF_SM_ACTIVE", **labels},
         "values": [[1780000000.5, "0.25"]]},
        {"metric": {"__name__": "DCGM_FI_DEV_FB_USED", **labels},
         "values": [[1780000000.5, "1024"]]},
        {"metric": {"__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **labels},
         "values": [[1780000000.5, "5000000"]]},
        {"metric": {"__name__": "DCGM_FI_DEV_FB_FREE", **labels}, "values": [[1780000000.5, "1"]]},
        {"metric": {"__name__": "node_load1", **labels}, "values": [[1780000000.5, "1"]]}]}}
    path = tmp_path / "range.json.gz"
    path.write_bytes(gzip.compress(json.dumps(answer).encode()))
    rows, problems = read(path)
    assert [(row.at, row.values) for row in rows] == [
        (1780000000.123, {"util_pct": 37}), (1780000002.123, {"util_pct": 41}),
        (1780000000.5, {"sm_active_pct": 25}), (1780000000.5, {"mem_used_bytes": 2**30}),
        (1780000000.5, {"energy_j": 5_000})]
    assert {(row.gpu.host, row.gpu.index, row.gpu.name) for row in rows} == {("n3", 1, "H100")}
    assert list(problems.unknown_columns) == ["node_load1"]
    assert problems.listed == [(0, "Prometheus warns: partial")]
    answer["data"]["result"][1]["metric"]["Hostname"] = "n4"  # type: ignore[index]
    path.write_bytes(gzip.compress(json.dumps(answer).encode()))
    with pytest.raises(ImportRefusedError, match="several nodes"):
        read(path, node="n9")


def test_what_an_exporter_served(tmp_path: Path) -> None:
    text = ("# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n"
            "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
            'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",Hostname="n\\"1"} 61\n'
            'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="n\\"1"} 9223372036854775794\n'
            'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",GPU_I_ID="3",Hostname="x"} 3\n')
    path = log_file(tmp_path, text, "metrics.txt")
    with pytest.raises(ImportRefusedError, match="--at"):
        read(path)
    rows, problems = read(path, at=1_780_000_000.0)
    assert [(row.gpu.host, row.at, row.values) for row in rows] == [
        ('n"1', 1_780_000_000, {"temp_c": 61})]
    assert list(problems.unknown_columns) == ["series of MIG instances (GPU_I_ID)"]


def test_of_one_second_means_and_peaks_are_kept() -> None:
    seconds, gpus = SecondsOfGpus(), RecordedGpus()
    gpu, values = gpus.get("n1", "0", "0"), [random.uniform(0, 100) for _ in range(10)]
    for at, value in enumerate(values):
        row = RecordedRow(gpu, 1_780_000_000 + at / 10, {
            "util_pct": value, "temp_c": 40.0 + at, "fan_pct": Absence.UNSUPPORTED})
        assert seconds.add(row)
    [second] = seconds.rest()
    assert second.values == {
        "util_pct": pytest.approx(sum(values) / 10), "util_max_pct": max(values), "temp_c": 49.0,
        "fan_pct": Absence.UNSUPPORTED}


def test_a_row_far_behind_is_not_taken_twice() -> None:
    seconds, gpus = SecondsOfGpus(), RecordedGpus()
    one, other = gpus.get("n1", "0", "0"), gpus.get("n1", "1", "1")
    for t in range(1_000, 1_200):
        seconds.add(RecordedRow(one, t, {"util_pct": 1.0}))
    assert [second.t for second in seconds.closed()] == list(range(1_000, 1_139))
    assert not seconds.add(RecordedRow(one, 1_100, {"util_pct": 2.0}))
    assert seconds.add(RecordedRow(one, 1_150, {"util_pct": 2.0}))
    assert seconds.add(RecordedRow(other, 1_000, {"util_pct": 2.0}))


@pytest.mark.parametrize(("cell", "value"), [
    ("98 %", 98), ("98", 98), ("[N/A]", Absence.UNSUPPORTED),
    ("[Not Supported]", Absence.UNSUPPORTED),
    ("[Unknown Error]", Absence.UNKNOWN), ("[GPU requires reset]", Absence.LOST),
    ("[Insufficient Permissions]", Absence.DENIED), ("", None)])
def test_cells_of_nvidia_smi(cell: str, value: object) -> None:
    column = recognise("utilization.gpu [%]")
    assert column is not None
    assert number(cell, column) == value


def test_a_unit_that_is_not_its_own_is_no_number() -> None:
    column = recognise("temperature.gpu")
    assert column is not None
    with pytest.raises(BadCellError, match="unit"):
        number("98 F", column)
    assert recognise("power.draw [parsec]") is None
