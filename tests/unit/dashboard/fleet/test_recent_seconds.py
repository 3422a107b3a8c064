"""Growth of a timeline: every Sample of a watched GPU once, in order, and nothing of others."""

import random
import struct
from typing import Any

from dashboard.fleet.fleet import Fleet
from dashboard.fleet.recent_seconds import KEPT, TimelineBuffer
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.unit.fleets import MONO, NOW, add_node, frame


class TimelineViewer:
    """Viewer that puts together what it gets."""

    def __init__(self, lines: TimelineBuffer, slots: list[int]) -> None:
        self.lines, self.slots, self.number = lines, slots, -1
        self.rows: dict[str, list[tuple[float, float | None]]] = {}

    def pull(self) -> None:
        for gpu in self.lines.since(self.slots, self.number):
            self.rows.setdefault(gpu["uuid"], []).extend(rows(gpu, "util_pct"))
        self.number = self.lines.number


def rows(gpu: dict[str, Any], key: str) -> list[tuple[float, float | None]]:
    times = struct.unpack(f"<{len(gpu['at']) // 8}d", gpu["at"])
    values = struct.unpack(f"<{len(gpu['values']) // 8}d", gpu["values"])
    return [(time, values[at * WIDTH + COLUMN[key]]
             if gpu["absent"][at * WIDTH + COLUMN[key]] == Absence.PRESENT else None)
            for at, time in enumerate(times)]


def a_fleet() -> Fleet:
    fleet = Fleet(1)
    for name in ("n1", "n2"):
        add_node(fleet, name, gpus=2)
    return fleet


def tick(fleet: Fleet, lines: TimelineBuffer, node: str, seq: int, *utils: float | None) -> None:
    samples = [{"util_pct": Absence.DENIED if util is None else util} for util in utils]
    fleet.frame(fleet.nodes[node], frame(samples, seq, NOW + seq), NOW + seq, MONO + seq)
    lines.note(node)


def test_each_sample_once_however_often_one_asks() -> None:
    fleet = a_fleet()
    lines = TimelineBuffer(fleet)
    lines.watch(["n1"])
    viewer, samples = TimelineViewer(lines, [1]), []
    for seq in range(1, 60):
        util = random.choice([None, random.uniform(0, 100), 0.0])
        tick(fleet, lines, "n1", seq, 1.0, util)
        tick(fleet, lines, "n2", seq, 2.0, 3.0)
        lines.note("n1")  # an Event, or the same Frame: no Sample
        samples.append((NOW + seq, util))
        if random.random() < 0.4:
            viewer.pull()
    viewer.pull()
    assert viewer.rows == {"GPU-n1-1": samples}


def test_what_is_known_when_one_begins_to_look_is_the_first() -> None:
    fleet = a_fleet()
    lines = TimelineBuffer(fleet)
    tick(fleet, lines, "n1", 1, 7.0, 8.0)
    lines.watch(["n1"])
    viewer = TimelineViewer(lines, [0, 1, 2])
    viewer.pull()
    assert viewer.rows == {"GPU-n1-0": [(NOW + 1, 7.0)], "GPU-n1-1": [(NOW + 1, 8.0)],
                           "GPU-n2-0": []}


def test_who_does_not_read_costs_a_minute_and_no_more() -> None:
    fleet = a_fleet()
    lines = TimelineBuffer(fleet)
    lines.watch(["n1"])
    viewer = TimelineViewer(lines, [0])
    for seq in range(1, 3 * KEPT):
        tick(fleet, lines, "n1", seq, float(seq % 100), None)
    viewer.pull()
    assert [time for time, _ in viewer.rows["GPU-n1-0"]] == [
        NOW + seq for seq in range(2 * KEPT, 3 * KEPT)]


def test_nobody_looks_nothing_is_kept() -> None:
    fleet = a_fleet()
    lines = TimelineBuffer(fleet)
    lines.watch(["n1", "n2"])
    lines.watch(["n2"])
    tick(fleet, lines, "n1", 1, 1.0, 2.0)
    assert TimelineViewer(lines, [0]).rows == {}
    assert lines.since([0], -1)[0]["at"] == b""
