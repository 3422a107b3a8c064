"""The embedded history: every second that came is told, once, from memory and from files."""

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboard.errors import ResultTooLargeError, UnknownMetricError
from dashboard.history.columns.layout import AT, KEYS
from dashboard.history.columns.memory import BLOCK_S
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.files.rebuild import rebuilt
from dashboard.history.files.sealing import GRACE_S, LATE_S, MAX_OPEN
from dashboard.history.files.store import HistoryRetention
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.history.storage.manifest import HistoryFile, Manifest
from tests.unit.histories import EVENT, START, Source, differences

HOUR_S, MINUTE_S = 3_600, 60


def opened(folder: Path, source: Source, keep: HistoryRetention | None = None) -> EmbeddedHistory:
    history = EmbeddedHistory(folder / "history", keep)
    history.open()
    history.append(source.greetings(), 1)
    return history


def settled(history: EmbeddedHistory, now: float) -> None:
    """Do all that is due by then; what is late waits once more."""
    history.store.maintain(now)
    history.store.maintain(now + LATE_S + 1)


def fed(history: EmbeddedHistory, source: Source, end: int) -> None:
    """Second by second, with what time does."""
    for t in range(START, end):
        history.append(source.second(t), 1)
        if t % 60 == 0:
            history.store.maintain(t)


def kinds(history: EmbeddedHistory) -> dict[str, int]:
    return {kind: info["files"] for kind, info in history.info().kinds.items()}


def test_every_second_is_as_it_came_after_seal_merge_and_restart(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    end = START + HOUR_S + 400
    messages = []
    for t in range(START, end):
        second = source.second(t)
        messages += [one for one in second if t >= START + HOUR_S - BLOCK_S]
        history.append(second, 1 + (t - START) // 100)
        if t % 60 == 0:
            history.store.maintain(t)
    assert differences(history, source, START, end) == []  # across the seam
    assert kinds(history)["raw"] == 2  # a merged hour and one block after it
    reopened = opened(tmp_path, source)
    reopened.append(messages, 1)  # as the head log has it: partly in files already
    assert differences(reopened, source, START, end) == []
    settled(reopened, end + BLOCK_S + GRACE_S)
    assert reopened.info().open_seconds == 0
    assert differences(reopened, source, START, end) == []
    counts = reopened.series(source.all_uuids, ["power_w"], START, end, HOUR_S, ("n",))
    assert int(counts["power_w_n"].sum()) == sum(
        isinstance(row["power_w"], float) for row in source.truth.values())
    assert events_of(reopened) == sorted(source.events)


def events_of(history: EmbeddedHistory) -> list[tuple[str, int]]:
    frame = history.events(0, START * 2)
    return sorted(zip(frame["node"], frame["seq"].astype(int), strict=True))


def test_minutes_and_hours_say_what_the_seconds_say(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    end = START + HOUR_S + 30
    for t in range(START, end):
        history.append(source.second(t), 1)
        if t % 100 == 0:
            history.store.maintain(t)
    for step in (60, 300, HOUR_S):
        frame = history.series(source.all_uuids, ["power_w", "util_pct", "throttle_bits"], START,
                               end, step, ("min", "mean", "max", "n"))
        assert len(frame) == len(source.all_uuids) * -(-(end - START) // step)
        for row in frame.to_dict("records"):
            check_bucket(source, row, step)


def check_bucket(source: Source, row: dict[str, Any], step: int) -> None:
    for metric, slack in (("power_w", 0.2), ("util_pct", 0.1)):
        values = [value for (gpu, t), sample in source.truth.items()
                  if gpu == row["gpu"] and t - t % step == row["t"]
                  and isinstance(value := sample[metric], float)]
        assert row[f"{metric}_n"] == len(values)
        assert (row[f"{metric}_min"], row[f"{metric}_max"]) == (min(values), max(values))
        assert row[f"{metric}_mean"] == pytest.approx(np.mean(values), abs=slack)
    bits = [int(value) for (gpu, t), sample in source.truth.items()
            if gpu == row["gpu"] and t - t % step == row["t"]
            and isinstance(value := sample["throttle_bits"], float)]
    assert int(row["throttle_bits_max"]) == np.bitwise_or.reduce(bits)


def test_late_seconds_lie_beside_and_then_among_the_others(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    late: list[HistoryMessage] = []
    end = START + HOUR_S
    for t in range(START, end):
        on_time = source.second(t)
        if START + 700 <= t < START + 1_500:
            late += [one for one in on_time if one.node_id == "n1"]
            on_time = [one for one in on_time if one.node_id != "n1"]
        history.append(on_time, 1)
        if t % 60 == 0:
            history.store.maintain(t)
    random.shuffle(late)
    for at in range(0, len(late), 97):
        history.append(late[at : at + 97], 2)
        history.append(late[at : at + 20], 2)  # doubled
    assert differences(history, source, START, end) == []
    assert history.store.first_segment() is not None
    settled(history, end + BLOCK_S)
    assert history.store.first_segment() is None
    assert differences(history, source, START, end) == []
    frame = history.series(source.all_uuids, ["power_w"], START, end, HOUR_S, ("n",))
    samples = sum(isinstance(row["power_w"], float) for row in source.truth.values())
    assert int(frame["power_w_n"].sum()) == samples
    history.store.maintain(end + HOUR_S)
    assert kinds(history)["raw"] == kinds(history)["minutes"] == kinds(history)["hours"] == 1
    assert differences(history, source, START, end) == []
    assert int(history.series(source.all_uuids, ["power_w"], START, end, HOUR_S,
                              ("n",))["power_w_n"].sum()) == samples


def test_no_question_sees_a_block_twice_or_not_at_all_while_it_is_sealed(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    for t in range(START, START + 1_500):
        history.append(source.second(t), 1)
    row_counts: set[int] = set()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            frame = history.series(source.all_uuids, ["power_w"], START, START + 1_500, 1)
            row_counts.add(len(frame))

    reader = threading.Thread(target=ask)
    reader.start()
    for t in range(START, START + 2_000, 60):
        history.store.maintain(t)
    history.store.maintain(START + 3 * HOUR_S)
    stop.set()
    reader.join()
    assert row_counts == {len(source.truth)}


def test_tasks_and_usage_count_each_second_once(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    end = START + 1_000
    for t in range(START, end):
        second = source.second(t)
        history.append(second, 1)
        history.append(second, 1)
        if t % 60 == 0:
            history.store.maintain(t)
    for _ in range(2):
        frame = history.tasks(START, end, limit=10**6)
        seconds = {(row["gpu"], int(row["t"]), row["task"]): int(row["seconds"])
                   for row in frame.to_dict("records")}
        assert seconds == source.tasks
        usage = history.usage("user", HOUR_S, START, end)
        assert {row["user"]: int(row["gpu_s"]) for row in usage.to_dict("records")} == {
            f"user-n{node}": sum(seconds for (uuid, _, _), seconds in source.tasks.items()
                                 if uuid == source.uuids[f"n{node}"][0]) for node in range(2)}
        settled(history, end + BLOCK_S)


def test_an_instant_names_the_value_or_why_there_is_none(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9), nodes=3)
    history = opened(tmp_path, source)
    for t in range(START, START + 700):
        history.append(source.second(t, whole=True), 1)
        if t % 60 == 0:
            history.store.maintain(t)
    for t in (START + 100, START + 299, START + 300, START + 699):
        frame = history.instant("temp_c", t)
        assert len(frame) == 6
        for row in frame.to_dict("records"):
            true_value = source.truth[row["gpu"], t]["temp_c"]
            assert row["t"] == t
            assert (row["missing"] if isinstance(true_value, str) else row["value"]) == true_value
    assert len(history.instant("temp_c", START + 100, frozenset({"n1"}))) == 2
    assert len(history.instant("temp_c", START - 100)) == 0
    assert set(history.instant("pstate", START + 50)["value"]) <= {0.0, 1.0}


@settings(max_examples=12, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(
    st.integers(0, 1_300),  # which second
    st.sampled_from(["n0", "n1"]),
    st.sampled_from([0, 0, 0, 1, 30, 3_000, -20])),  # how much later it comes; the clock steps
    min_size=1, max_size=60), st.data())
def test_whatever_order_things_come_in(tmp_path_factory: pytest.TempPathFactory,
                                       arrivals: list[tuple[int, str, int]], data: Any) -> None:
    """Late, doubled, out of order, with steps of the hub's clock both ways."""
    folder = tmp_path_factory.mktemp("order")
    source = Source(data.draw(st.integers(0, 10**6)))
    history = opened(folder, source)
    messages: list[HistoryMessage] = []
    now = START
    for second, node, delay in arrivals:
        t = START + second
        now = max(now, t) + delay
        second_messages = source.node_second(node, t, float(now))
        history.append(second_messages, 1)
        messages += second_messages
        if data.draw(st.booleans()):
            history.append(second_messages, 1)
        if data.draw(st.integers(0, 4)) == 0:
            settled(history, now)
        if data.draw(st.integers(0, 9)) == 0:
            history = opened(folder, source)
            history.append(messages, 1)
    span = (START, START + 1_400)
    assert differences(history, source, *span) == []
    settled(history, now + 2 * BLOCK_S)
    assert differences(history, source, *span) == []
    settled(history, START + 3 * HOUR_S)
    assert differences(history, source, *span) == []


def test_a_slot_in_the_inventory_that_changes_its_gpu_mixes_nothing(tmp_path: Path) -> None:
    """A MIG instance goes and another takes its index: each has its own past."""
    source, after = Source(1, nodes=1), Source(2, nodes=1)
    history = opened(tmp_path, source)
    for t in range(START, START + 100):
        history.append(source.second(t), 1)
    history.append(after.greetings(), 1)
    for t in range(START + 100, START + 200):
        history.append(after.second(t), 1)
    for _ in range(2):
        assert differences(history, source, START, START + 400) == []
        assert differences(history, after, START, START + 400) == []
        settled(history, START + 2 * BLOCK_S)


def test_what_is_old_goes_and_the_coarser_stays(tmp_path: Path) -> None:
    source = Source(3)
    history = opened(tmp_path, source, HistoryRetention(raw_s=HOUR_S, minutes_s=3 * HOUR_S,
                                                        hours_s=10 * HOUR_S))
    fed(history, source, START + 700)
    history.store.maintain(START + 2 * HOUR_S + 1)
    assert "raw" not in kinds(history)
    frame = history.series(source.all_uuids, ["power_w"], START, START + 600, 1)
    assert set(frame["t"]) == set(range(START, START + 600, 60))  # minutes stand in
    assert [history.finest(t) for t in (START, START + HOUR_S)] == [MINUTE_S, 1]
    history.store.maintain(START + 5 * HOUR_S)
    assert "minutes" not in kinds(history)
    assert [history.finest(t) for t in (START, START + HOUR_S)] == [HOUR_S, 1]
    assert len(history.series(source.all_uuids, ["power_w"], START, START + 600, HOUR_S))
    files = list((tmp_path / "history").rglob("*.parquet"))
    assert len(files) == sum(kinds(history).values())


def test_a_clock_that_leaps_ahead_makes_nothing_old_for_a_day(tmp_path: Path) -> None:
    source = Source(3)
    history = opened(tmp_path, source)
    fed(history, source, START + 700)
    year_s, day_s = 365 * 86_400, 86_400
    history.store.maintain(START + 700, 50.0)
    history.store.maintain(START + year_s, 55.0)
    history.store.maintain(START + year_s + 60, 115.0)
    assert differences(history, source, START, START + 700) == []
    history.store.maintain(START + year_s + day_s + 60, 55.0 + day_s + 60)
    assert "raw" not in kinds(history)


def test_a_bound_of_size_takes_the_oldest_seconds_first(tmp_path: Path) -> None:
    source = Source(3)
    history = opened(tmp_path, source)
    fed(history, source, START + 1_300)
    history.store.maintain(START + 5 * BLOCK_S + 30)
    raw = sorted(history.store.manifest.of_kind("raw"), key=lambda one: one.start)
    history.store.keep = HistoryRetention(size_bytes=history.info().bytes - 1)
    history.store.maintain(START + 5 * BLOCK_S + 60)
    assert [one.name for one in raw[1:]] == [
        one.name for one in sorted(history.store.manifest.of_kind("raw"),
                                   key=lambda one: one.start)]


def test_questions_that_are_too_large_or_of_nothing(tmp_path: Path) -> None:
    history = opened(tmp_path, Source(1))
    with pytest.raises(ResultTooLargeError, match="fewer GPUs"):
        history.series(["a"] * 1_000, ["power_w"], 0, 10**6, 1)
    with pytest.raises(UnknownMetricError, match="power_w"):
        history.series(["a"], ["warmth"], 0, 10, 1)
    assert len(history.series(["'; drop"], ["power_w"], 0, 10, 1)) == 0


def test_the_disk_is_full_and_then_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    history.append(source.span(START, START + 500), 1)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dashboard.history.files.parquet.sync", full)
    history.store.maintain(START + 400)
    assert history.info().error == "No space left on device"
    assert differences(history, source, START, START + 500) == []
    assert history.store.first_segment() == 1
    monkeypatch.undo()
    history.store.maintain(START + 440)
    assert history.info().error is None
    assert kinds(history)["raw"] == 1
    assert differences(history, source, START, START + 500) == []


def test_a_disk_that_stays_full_costs_the_oldest_minutes_and_no_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dashboard.history.files.parquet.sync", full)
    blocks = MAX_OPEN + 3
    for at in range(blocks):
        history.append(source.span(START + at * BLOCK_S, START + at * BLOCK_S + 5), 1)
        history.store.maintain(START + (at + 1) * BLOCK_S + GRACE_S)
    assert len(history.store.feed.head.closed) == MAX_OPEN
    shed = [key for key in source.truth if key[1] < START + 3 * BLOCK_S]
    assert history.info().counts["shed_seconds"] == len(shed) > 0
    span = (START + 3 * BLOCK_S, START + blocks * BLOCK_S)
    assert differences(history, source, *span) == []  # what is left is told while nothing is taken
    monkeypatch.undo()
    history.store.maintain(START + (blocks + 1) * BLOCK_S)
    assert history.info().error is None
    assert differences(history, source, *span) == []
    assert history.info().open_seconds == 0


def test_a_file_is_checked_before_it_is_believed(tmp_path: Path) -> None:
    source = Source(4)
    history = opened(tmp_path, source)
    fed(history, source, START + 700)
    history.store.maintain(START + 4 * BLOCK_S)
    [one, *_] = sorted((tmp_path / "history" / "raw").glob("*.parquet"))
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    reopened = opened(tmp_path, source)
    one.write_bytes(data)
    frame = reopened.series(source.all_uuids, ["power_w"], START, START + 700, 1)
    assert frame["t"].min() >= START + BLOCK_S  # a hole, not a wrong number
    assert reopened.info().quarantined == [f"raw/{one.name}"]
    assert (tmp_path / "history" / "quarantine" / one.name).exists()


def segment(name: str) -> HistoryFile:
    return HistoryFile(f"raw/{file_name(name)}", "raw", 0, 300, 300, 1, 3, "x")


def file_name(name: str) -> str:
    return f"raw-0-300-{ord(name)}.parquet"


def test_a_manifest_with_one_bad_copy_is_whole_and_with_two_puts_files_aside(
    tmp_path: Path
) -> None:
    manifest = Manifest(tmp_path)
    manifest.load(rebuilt)
    (tmp_path / "raw").mkdir()
    for name in "abc":
        (tmp_path / "raw" / file_name(name)).write_text("abc")
        manifest.commit([segment(name)])
    for copy, line in (("manifest.jsonl", 1), ("manifest.copy.jsonl", 0)):
        flip_line(tmp_path, (copy,), line)
        reloaded = Manifest(tmp_path)
        reloaded.load(rebuilt)
        assert len(reloaded.segments) == 3
        assert reloaded.damaged_lines == 1
    flip_line(tmp_path, ("manifest.jsonl", "manifest.copy.jsonl"), 0)
    last = Manifest(tmp_path)
    last.load(rebuilt)
    assert last.damaged_lines == 2
    assert sorted(path.name for path in (tmp_path / "quarantine").iterdir()) == [
        file_name(name) for name in "abc"]


def flip_line(folder: Path, copies: tuple[str, ...], line: int) -> None:
    for copy in copies:
        lines = (folder / copy).read_bytes().split(b"\n")
        lines[line] = lines[line].replace(b"300", b"200", 1)
        (folder / copy).write_bytes(b"\n".join(lines))


def test_what_no_line_names_is_half_a_change_and_goes(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    manifest.load(rebuilt)
    (tmp_path / "raw").mkdir()
    draft = tmp_path / "raw" / f".{file_name('b')}".replace("parquet", "new")
    for path in (tmp_path / "raw" / file_name("a"), tmp_path / "raw" / file_name("b"), draft):
        path.write_text("abc")
    manifest.commit([segment("a")])
    with (tmp_path / "manifest.jsonl").open("ab") as file:
        file.write(b'{"n":2,"add":[{"na')  # a torn line is no damage of what was committed
    reopened = Manifest(tmp_path)
    reopened.load(rebuilt)
    assert set(reopened.segments) == {segment("a").name}
    assert [path.name for path in (tmp_path / "raw").iterdir()] == [file_name("a")]
    reopened.commit([segment("b")])
    assert _numbers(tmp_path) == [1, 2]


def test_what_others_laid_into_the_folder_stays_and_does_not_keep_the_hub_from_starting(
        tmp_path: Path) -> None:
    (tmp_path / "raw" / ".ipynb_checkpoints").mkdir(parents=True)
    foreign_files = [tmp_path / "notes" / "mine.parquet", tmp_path / "raw" / "copy.parquet",
                     tmp_path / "raw" / ".ipynb_checkpoints" / "look.ipynb"]
    for path in foreign_files:
        path.parent.mkdir(exist_ok=True)
        path.write_text("theirs")
    manifest = Manifest(tmp_path)
    manifest.load(rebuilt)
    manifest.commit([])
    Manifest(tmp_path).load(rebuilt)
    assert [path.read_text() for path in foreign_files] == ["theirs"] * 3


def _numbers(folder: Path) -> list[int]:
    manifest = Manifest(folder)
    manifest.load(rebuilt)
    return list(range(1, manifest.number + 1))


def test_all_metrics_have_a_place() -> None:
    assert len(KEYS) == len(AT)


def test_minutes_of_one_owner_add_up_to_their_hours_from_memory_and_files(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9), nodes=3)
    history = opened(tmp_path, source)
    end = START + 1_000
    fed(history, source, end)
    user = f"user-n{random.randrange(3)}"
    whole = history.usage("user", 0, START, end, of=user).to_dict("records")
    assert [row["user"] for row in whole] == [user]
    for _ in range(2):
        minutes = history.usage("user", MINUTE_S, START, end, of=user)
        assert len(minutes) == len({key[1] for key in source.tasks if key[2].startswith(
            f"boot:{user.removeprefix('user-')}:")})
        for name in ("gpu_s", "idle_s", "util_s", "mem_byte_s", "energy_s"):
            assert minutes[name].sum() == whole[0][name], name
        for name in ("util_pct_s", "energy_j"):  # of means that files round
            assert minutes[name].sum() == pytest.approx(whole[0][name], rel=0.01), name
        settled(history, end + BLOCK_S)
    by_owner = history.usage("user", HOUR_S, START, end)
    assert len(by_owner) == 3
    usage = history.held(("user", "node", "gpu"), START, end)
    assert dict(zip(usage["user"], usage["gpu_s"], strict=True)) == dict(zip(
        by_owner["user"], by_owner["gpu_s"], strict=True))
    assert set(usage["node"]) == {"n0", "n1", "n2"}
    assert set(usage["gpu"]) == {uuids[0] for uuids in source.uuids.values()}
    with pytest.raises(UnknownMetricError, match="whole hours"):
        history.usage("user", MINUTE_S, START, end)


def test_events_are_found_by_gpu_and_kind_beyond_the_limit(tmp_path: Path) -> None:
    source = Source(random.randrange(10**9))
    history = opened(tmp_path, source)
    end = START + 900
    fed(history, source, end)
    [first, *_] = [uuid for node, uuid in ((n, u[0]) for n, u in source.uuids.items())]
    for _ in range(2):
        every = history.events(START, end)
        mine = every[every["gpu"] == first]
        events = history.events(START, end, limit=len(mine), gpus=[first], kinds=[EVENT])
        assert events["seq"].tolist() == mine["seq"].tolist()
        assert not len(history.events(START, end, kinds=["xid"]))
        settled(history, end + BLOCK_S)
