"""What is read straight out of files, beside the truth and beside what DuckDB says of them."""

import random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dashboard.history.columns import KEYS
from dashboard.history.embedded import UNPACKS_MOST, EmbeddedHistory
from dashboard.history.grid import HistoryGrid
from dashboard.history.instants import NO_SAMPLE
from dashboard.history.memory import BLOCK_S
from dashboard.history.row_index import SizedLruCache
from dashboard.history.sealing import LATE_S
from gpudeck.metrics import SLOW, Absence
from tests.unit.histories import START, Source

SPAN_S = 1_000
END = START + SPAN_S


@pytest.fixture(name="past", scope="module")
def _past(tmp_path_factory: pytest.TempPathFactory) -> tuple[EmbeddedHistory, Source]:
    """Files of five minutes with holes, late ones beside them, and the newest in memory."""
    source = Source(random.randrange(10**9), nodes=3, gpus=3)
    history = EmbeddedHistory(tmp_path_factory.mktemp("past") / "history")
    history.open()
    history.append(source.greetings(), 1)
    late = []
    for t in range(START, END):
        said = source.second(t)
        if START + 100 <= t < START + 420:
            late += [one for one in said if one.node_id == "n1"]
            said = [one for one in said if one.node_id != "n1"]
        history.append(said, 1)
        if t % 60 == 0:
            history.store.maintain(t)
    history.append(late, 2)
    history.store.maintain(END)
    history.store.maintain(END + LATE_S + 1)
    assert history.info().kinds["raw"]["files"] > 3
    assert history.info().open_seconds > 0
    return history, source


def told(history: EmbeddedHistory, unpacks_most: int, *asked: Any) -> pd.DataFrame:
    history.unpacks_most = unpacks_most
    try:
        return history.series(*asked)
    finally:
        history.unpacks_most = UNPACKS_MOST


@pytest.mark.parametrize("step", [1, 7, 60, 3_600])
def test_it_is_what_duckdb_says(past: tuple[EmbeddedHistory, Source], step: int) -> None:
    history, source = past
    for nodes in (None, frozenset({"n0", "n1"}), frozenset({"none"})):
        gpus = random.sample([*source.all_uuids, "GPU-none"], 5)
        asked = (gpus, KEYS, START + 37, END - 11, step, ("min", "mean", "max", "n"), nodes)
        straight, other = told(history, UNPACKS_MOST, *asked), told(history, 0, *asked)
        pd.testing.assert_frame_equal(straight, other, rtol=1e-9)
        assert (len(straight) > 0) == (nodes is None or "n0" in nodes)
        assert list(straight["gpu"]) == sorted(straight["gpu"])


def test_bits_are_joined_as_bits_wherever_they_lie(past: tuple[EmbeddedHistory, Source]) -> None:
    """Half of the hour is in files, half in memory: neither number is the lowest or highest."""
    history, source = past
    for gpu in source.all_uuids:
        bits = [int(value) for (uuid, _), row in source.truth.items()
                if uuid == gpu and isinstance(value := row["throttle_bits"], float)]
        row = history.series([gpu], ["throttle_bits"], START, END, 3_600).iloc[0]
        assert int(row["throttle_bits_min"]) == np.bitwise_and.reduce(bits)
        assert int(row["throttle_bits_max"]) == np.bitwise_or.reduce(bits)


def block(history: EmbeddedHistory, metric: str, start: int, nodes: frozenset[str] | None
          ) -> pd.DataFrame:
    """As many moments in a row see it: of each second, what was said in it."""
    grid = HistoryGrid(start, 1, BLOCK_S)
    history.rules.past({metric: frozenset(("max",))}, grid)
    values = grid.of(metric, "max")
    assert values is not None
    return pd.DataFrame({gpu: values[row] for (gpu, node), row in grid.rows.items()
                         if nodes is None or node in nodes},
                        index=range(start, start + BLOCK_S), dtype=float)


def test_a_block_is_every_second_of_it(past: tuple[EmbeddedHistory, Source]) -> None:
    history, source = past
    for start in range(START, END, BLOCK_S):
        for nodes in (None, frozenset({"n1"})):
            frame = block(history, "temp_c", start, nodes)
            wanted = pd.DataFrame({gpu: [
                value if isinstance(value := source.truth.get((gpu, t), {}).get("temp_c"), float)
                else np.nan for t in range(start, start + BLOCK_S)]
                for gpu in (source.all_uuids if nodes is None else source.uuids["n1"])},
                index=range(start, start + BLOCK_S))
            pd.testing.assert_frame_equal(frame[list(wanted)], wanted)


def test_an_instant_is_the_newest_of_three_seconds(past: tuple[EmbeddedHistory, Source]) -> None:
    history, source = past
    for t in random.sample(range(START, END), 40):
        frame = history.instant("power_w", t)
        said = {row["gpu"]: row for row in frame.to_dict("records")}
        newest = {gpu: second for second in range(t - 2, t + 1) for gpu in source.all_uuids
                  if (gpu, second) in source.truth}
        assert said.keys() == newest.keys()
        assert list(frame["gpu"]) == sorted(said)
        for gpu, at in newest.items():
            value = source.truth[gpu, at]["power_w"]
            assert said[gpu]["t"] == at
            assert (said[gpu]["missing"] if isinstance(value, str) else said[gpu]["value"]) == value


def test_seconds_that_are_all_kept_are_not_looked_for_among_minutes(
        past: tuple[EmbeddedHistory, Source], monkeypatch: pytest.MonkeyPatch) -> None:
    """A look into an empty stretch of them took as long as all the rest."""
    history, source = past

    def asked(*_: object) -> None:
        raise AssertionError("DuckDB was asked")

    monkeypatch.setattr(history._db, "ask", asked)
    assert len(history.series(source.all_uuids[:2], ["power_w"], START + 301, END, 1))


def test_what_is_kept_is_bounded_and_the_newest_stays() -> None:
    kept: SizedLruCache[int, str] = SizedLruCache(len, 10)
    made: list[int] = []

    def get(key: int, size: int) -> str:
        def make() -> str:
            made.append(key)
            return "x" * size
        return kept.get(key, make)

    get(1, 4), get(2, 4), get(1, 4)
    assert made == [1, 2]
    get(3, 4)  # 2 was asked for longest ago
    get(1, 4), get(2, 4)
    assert made == [1, 2, 3, 2]
    assert len(get(4, 99)) == 99
    get(4, 99)
    assert made == [1, 2, 3, 2, 4]
    get(1, 4)
    assert made[-1] == 1


@pytest.mark.parametrize("metric", ["power_w", "pcie_tx_bytes_per_s", SLOW[0].key])
def test_many_instants_at_once_are_the_instants_one_by_one(
        past: tuple[EmbeddedHistory, Source], metric: str) -> None:
    """Over files, late files and memory, over the edges of blocks, of all Nodes and of one."""
    history, _ = past
    for step, nodes in ((1, None), (7, frozenset({"n1"})), (47, None)):
        first = random.randrange(START - 20, END - 20 * step)
        moments = list(range(first, first + 20 * step, step))
        found = history.instants(metric, moments, nodes)
        assert found.grain_s == 1
        samples = 0
        for at, t in enumerate(moments):
            rows = history.instant(metric, t, nodes).to_dict("records")
            told = {(row["gpu"], row["node"]): row["missing"] if np.isnan(row["value"])
                    else row["value"] for row in rows}
            shown = {pair: Absence(why).word if why else value for pair, value, why in zip(
                found.pairs, found.value[at].tolist(), found.why[at].tolist(), strict=True)
                if why != NO_SAMPLE}
            assert shown == told, t
            samples += len(told)
        assert samples or first + 20 * step < START + 40, first


def test_seconds_that_were_given_up_are_shown_by_their_minutes(
        past: tuple[EmbeddedHistory, Source], monkeypatch: pytest.MonkeyPatch) -> None:
    history, _ = past
    cut = START + 600
    with history.store.lock:
        monkeypatch.setitem(history.store.manifest.forgotten, "raw", cut)
    moments = list(range(cut - 130, cut + 131, 20))
    found = history.instants("power_w", moments)
    assert found.grain_s == 60
    for at, t in enumerate(moments):
        told = history.instant("power_w", t).set_index(["gpu", "node"])["value"]
        for pair, value in zip(found.pairs, found.value[at].tolist(), strict=True):
            wanted = told.get(pair, np.nan)
            assert value == wanted or (np.isnan(value) and np.isnan(wanted)), (t, pair)
