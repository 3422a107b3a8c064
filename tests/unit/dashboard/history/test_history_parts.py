"""The parts of history that are pure: seconds, steps, roll-ups, what is merged when."""

import random
from dataclasses import replace

import numpy as np
import pytest

from dashboard.fleet.sample_seconds import SampleSecondAligner
from dashboard.history.columns.arrays import concat_rows, take_rows
from dashboard.history.columns.grid import GpuMetricRows
from dashboard.history.columns.layout import AT, KEYS, STORED, missing_at, missing_words, quantise
from dashboard.history.columns.memory import SampleRows
from dashboard.history.columns.rollup import Rollup, coarser, roll_up
from dashboard.history.files.merge import FULL_ROWS, MANY_LATE, QUIET_S, SETTLE_S, merges
from dashboard.history.files.reading import fill_wide
from dashboard.history.storage.manifest import HistoryFile
from gpudeck.contract.wire import pack
from gpudeck.measures.metrics import COLUMNS, WIDTH, Absence

HOUR_S = 3_600


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.98, 0.999])
def test_a_tick_that_trembles_at_the_edge_of_a_second_fills_each_once(part: float) -> None:
    seconds = SampleSecondAligner()
    filled = [seconds.of(1_000 + at + part + random.uniform(-0.1, 0.1)) for at in range(500)]
    assert np.diff(filled).tolist() == [1] * 499


def test_a_tick_that_drifts_loses_at_most_one_second_per_second_of_drift() -> None:
    seconds = SampleSecondAligner()
    filled = [seconds.of(at * 1.001) for at in range(10_000)]
    assert len(set(filled)) >= 10_000 - 2
    assert all(second in (int(at * 1.001), int(at * 1.001) - 1, int(at * 1.001) + 1)
               for at, second in enumerate(filled))


def test_what_is_out_of_range_is_missing_as_in_the_live_picture() -> None:
    rows = [[metric.high for metric in COLUMNS], [metric.high * 2 + 1 for metric in COLUMNS],
            [metric.low for metric in COLUMNS]]
    absent = bytearray(3 * WIDTH)
    absent[2 * WIDTH] = Absence.DENIED
    steps, missing = quantise(pack([value for row in rows for value in row]), bytes(absent))
    assert missing[0] == 0
    assert {int(missing_at(missing, at)[1]) for at in range(WIDTH)} == {Absence.UNKNOWN}
    assert missing_words(int(missing[2])) == f"{KEYS[0]}=denied"
    assert (steps[1] == 0).all()


@pytest.mark.parametrize("many", [0, 1, 2, 7])
def test_however_few_gpus_there_are_their_values_become_steps(many: int) -> None:
    rows = [[random.uniform(metric.low, min(metric.high, 1e9)) for metric in COLUMNS]
            for _ in range(many)]
    absent = bytes(random.choice((0, 0, Absence.DENIED)) for _ in range(many * WIDTH))
    steps, missing = quantise(pack([value for row in rows for value in row]), absent)
    for row in range(many):
        for at, column in enumerate(STORED):
            assert missing_at(missing, at)[row] == absent[row * WIDTH + at]
            assert steps[row, at] == np.rint(rows[row][at] * (1 / column.step))


def test_what_is_no_number_is_missing() -> None:
    steps, missing = quantise(pack([float("nan")] * WIDTH), bytes(WIDTH))
    assert {int(missing_at(missing, at)[0]) for at in range(WIDTH)} == {Absence.UNKNOWN}
    assert (steps == 0).all()


def test_every_step_and_bound_fits_into_its_place() -> None:
    for metric, column in zip(COLUMNS, STORED, strict=True):
        most = max(abs(metric.low), abs(metric.high)) / column.step
        assert most <= np.iinfo(column.dtype).max, metric.key
        units = np.array([round(most), round(most / 3)], column.dtype)
        values = units.astype(np.float64) * column.step
        assert (column.values(units).astype(np.float64) == values).all(), metric.key


def rows_of(count: int, seed: int) -> SampleRows:
    rng = np.random.default_rng(seed)
    at = np.sort(rng.choice(40_000, count, replace=False))
    missing = np.where(rng.random(count) < 0.1, Absence.DENIED << (3 * AT["power_w"]), 0)
    units = {column.key: rng.integers(0, 100, count).astype(column.dtype) for column in STORED}
    return SampleRows((at // 10_000).astype(np.intp), at % 10_000, np.ones(count, np.uint8),
                      missing.astype(np.int64), units)


def test_roll_ups_of_disjoint_seconds_add_up() -> None:
    rows = rows_of(5_000, random.randrange(10**6))
    whole = roll_up(rows, HOUR_S)
    half = np.random.default_rng(random.getrandbits(32)).random(len(rows)) < 0.3
    parts = concat_rows([coarser(roll_up(take_rows(rows, np.flatnonzero(which)), 60), 60)
                         for which in (half, ~half)])
    parts = take_rows(parts, np.lexsort((parts.t, parts.slot)))
    assert_same(coarser(parts, HOUR_S), whole)


def assert_same(one: Rollup, two: Rollup) -> None:
    assert one.slot.tolist() == two.slot.tolist()
    assert one.t.tolist() == two.t.tolist()
    assert one.seconds.tolist() == two.seconds.tolist()
    for key in KEYS:
        assert one.n[key].tolist() == two.n[key].tolist()
        assert one.low[key].tolist() == two.low[key].tolist()
        assert one.high[key].tolist() == two.high[key].tolist()
        assert one.total[key] == pytest.approx(two.total[key])


def file(start: int, span_s: int, made_at: float = 0.0, kind: str = "raw") -> HistoryFile:
    return HistoryFile(f"{kind}/{start}-{span_s}-{made_at}", kind, start,
                       start + (span_s or HOUR_S),
                       span_s, 1, 1, "", made_at)


def test_what_is_merged_when() -> None:
    parts = [file(start, 300) for start in range(0, HOUR_S, 300)]
    assert merges(parts, HOUR_S + SETTLE_S - 1) == []
    [one] = merges(parts, HOUR_S + SETTLE_S)
    assert (one.start, one.end, len(one.parts)) == (0, HOUR_S, 12)
    whole = file(0, HOUR_S)
    assert merges([whole], 10 * HOUR_S) == []
    late = file(0, 0, 10.0 * HOUR_S)
    assert merges([whole, late], 10 * HOUR_S + QUIET_S - 1) == []
    assert len(merges([whole, late], 10 * HOUR_S + QUIET_S)) == 1
    many = [file(0, 0, 10.0 * HOUR_S + at) for at in range(MANY_LATE)]
    assert len(merges([whole, *many], 10 * HOUR_S + MANY_LATE)) == 1


def test_full_files_stay_and_what_came_late_for_them_is_merged_apart() -> None:
    full = [replace(file(start, 300), rows=FULL_ROWS) for start in range(0, HOUR_S, 300)]
    late = [file(0, 0, 10.0), file(0, 0, 20.0)]
    assert merges(full, 10 * HOUR_S) == []
    assert merges([*full, late[0]], 10 * HOUR_S) == []
    assert merges([*full, *late], 20 + QUIET_S - 1) == []
    [one] = merges([*full, *late], 20 + QUIET_S)
    assert (one.start, one.end, one.span_s, set(one.parts)) == (0, HOUR_S, 0, set(late))
    [whole] = merges([replace(part, rows=FULL_ROWS - 1) for part in full], 10 * HOUR_S)
    assert whole.span_s == HOUR_S


def test_no_file_is_in_two_merges() -> None:
    files = [file(hour * HOUR_S, HOUR_S, kind="minutes") for hour in range(24)]
    files += [file(at, 300, kind="minutes") for at in range(0, HOUR_S, 300)]
    merge_list = merges(files, 30 * HOUR_S)
    names = [part.name for one in merge_list for part in one.parts]
    assert len(names) == len(set(names))
    assert merge_list


def test_a_minute_in_which_nothing_was_counted_counts_nothing() -> None:
    """A file from before a metric was there has null in place of its count."""
    none = np.array([np.nan, 3.0])
    part = GpuMetricRows([("GPU-1", "n1")], np.zeros(2, np.intp), np.array([0, 60]), {}, {})
    with np.errstate(invalid="raise"):
        fill_wide("minutes", {"power_w": frozenset(("mean",))}, part,
                  {"power_w_mean": none, "power_w_n": none})
    assert part.n["power_w"].tolist() == [0, 3]
