"""Refused claims are in the audit log of the node, however often they are asked for."""

import json
import random
from pathlib import Path

from gpudeck.contract.pool_messages import ClaimRefused
from gpudeck.rate import REFUSALS_AT_ONCE

from .test_reservations import Asker, Machine


def test_a_refused_claim_is_recorded_and_a_thousand_fill_no_disk(tmp_path: Path) -> None:
    machine, many = Machine(tmp_path), random.randint(500, 1_000)
    replies = []
    for _ in range(many):
        replies.append(machine.ask(Asker(owner="mallory"), 5))
        machine.now += 0.01
    assert all(isinstance(reply, ClaimRefused) for reply in replies)
    records = [record for link in machine.journal.audit.links()
               if (record := json.loads(link.body)).get("pool") == "refused"]
    assert (records[0]["owner"], records[0]["count"]) == ("mallory", 1)
    assert "the largest has 4" in records[0]["why"]
    assert REFUSALS_AT_ONCE <= len(records) <= REFUSALS_AT_ONCE + 1
    machine.now += 3_600.0
    machine.ask(Asker(owner="mallory"), 5)
    last = [json.loads(link.body) for link in machine.journal.audit.links()][-1]
    assert sum(row["count"] for row in (*records, last)) == many + 1
    machine.store.close()
