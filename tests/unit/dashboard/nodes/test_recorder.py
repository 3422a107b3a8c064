"""Parts in which the recorder reports what is on disk."""

import random
from pathlib import Path
from typing import Any

import gevent
import pytest

from dashboard.fleet.effects import RecordsStored, StreamRecord
from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.nodes import recorder
from dashboard.nodes.recorder import ACKED_AT_ONCE, MessageRecorder, by_nodes
from dashboard.nodes.report_pace import PACED_FROM
from tests.patience import GIVE_UP_S


def test_a_node_has_one_ack_and_no_record_is_left_out() -> None:
    dice = random.Random()
    batch = [StreamRecord(f"n{dice.randrange(300)}", "s1", seq, 0.0, b"") for seq in range(2_000)]
    batch += [StreamRecord("n7", "s1", seq, 0.0, b"") for seq in range(2_000, 2_400)]
    parts = [*by_nodes(batch)]
    assert {record.seq for part in parts for record in part} == {*range(2_400)}
    names = [{record.node_id for record in part} for part in parts]
    assert sum(map(len, names)) == len(set().union(*names))
    assert [record.seq for part in parts for record in part if record.node_id == "n7"] == [
        record.seq for record in batch if record.node_id == "n7"]
    assert max(map(len, parts)) <= ACKED_AT_ONCE + 400 + 40
    assert [*by_nodes([])] == []


class NoHistory:
    def append(self, messages: list[Any], segment: int) -> None:
        pass


@pytest.mark.parametrize("is_stopped", [False, True])
def test_all_is_reported_though_every_node_falls_silent(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool) -> None:
    monkeypatch.setattr(recorder, "FLUSH_EVERY_S", 0.01)
    reported: list[StreamRecord] = []

    def submit(event: Any) -> None:
        assert isinstance(event, RecordsStored)
        reported.extend(event.records)

    writer = MessageRecorder(tmp_path, lambda _: None, FleetStateMachine("hub", 1), submit,
                             NoHistory(), lambda: None)  # type: ignore[arg-type]
    writer.recover()
    records = [StreamRecord(f"n{at}", "s1", 1, 0.0, b"frame") for at in range(3 * PACED_FROM)]
    for record in records:
        writer.put(record)
    running = gevent.spawn(writer.run)
    with gevent.Timeout(GIVE_UP_S):
        if is_stopped:
            writer.stop()
            running.join()
        while len(reported) < len(records):
            gevent.sleep(0.01)
        writer.stop()
        running.join()
    writer.close()
    assert sorted(reported, key=records.index) == records
