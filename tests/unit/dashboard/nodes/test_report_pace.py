"""Pace of reports of what is on disk: each record once, none later than a flush, and some at
once."""

import random
from itertools import pairwise

from dashboard.fleet.effects import StreamRecord
from dashboard.nodes.report_pace import PACED_FROM, ReportPacer

NODES = [f"n{at}" for at in range(2 * PACED_FROM)]


def records(names: list[str], seq: int, is_backfill: bool = False) -> list[StreamRecord]:
    return [StreamRecord(name, "s1", seq, 0.0, b"", is_backfill) for name in names]


def test_of_many_nodes_each_is_reported_at_every_other_flush_and_nothing_is_left_out() -> None:
    pacer, reported = ReportPacer(), dict[str, list[int]]()
    turns = []
    for seq in range(1, 8):
        due = pacer.due(records(NODES, seq), is_last=False)
        turns.append({record.node_id for record in due})
        for record in due:
            reported.setdefault(record.node_id, []).append(record.seq)
    assert all(not before & after and before | after == {*NODES}
               for before, after in pairwise(turns))
    due = pacer.due([], is_last=False)  # all have fallen silent
    assert {record.seq for record in due} == {7}
    for record in due:
        reported[record.node_id].append(record.seq)
    assert set(reported) == {*NODES}
    assert all(seqs == [*range(1, 8)] for seqs in reported.values())
    assert pacer.waiting == []


def test_few_nodes_and_the_last_flush_wait_for_nothing() -> None:
    few, many = random.sample(NODES, PACED_FROM - 1), records(NODES, 1)
    assert len(ReportPacer().due(records(few, 1), is_last=False)) == len(few)
    assert ReportPacer().due(many, is_last=True) == many


def test_what_is_made_up_for_is_reported_at_once() -> None:
    """Its agent brings more when it has the Ack."""
    returned = random.choice(NODES)
    for flushes in range(2):  # in one of them it would have been its turn
        pacer = ReportPacer()
        for _ in range(flushes):
            pacer.due([], is_last=False)
        due = pacer.due([*records(NODES, 1), *records([returned], 2, is_backfill=True)],
                        is_last=False)
        assert [record.seq for record in due if record.node_id == returned] == [1, 2]
        assert 0 < len(pacer.waiting) < len(NODES)
