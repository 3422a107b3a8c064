"""Parts in which the recorder reports what is on disk."""

import random

from dashboard.fleet.effects import StreamRecord
from dashboard.nodes.recorder import ACKED_AT_ONCE, by_nodes


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
