"""Past moments of the fleet: whose it was then, what was wasted, leased and free."""

import random
import struct
from typing import Any

import numpy as np
import pandas as pd

from dashboard.fleet.fleet import Fleet
from dashboard.fleet.gpu_table import NO_TASK
from dashboard.fleet.past_moment import (
    METRICS,
    MomentReads,
    PastLease,
    PastPool,
    PastQueue,
    moment_view,
    newest_minute,
)
from dashboard.fleet.past_views import ground
from dashboard.fleet.visibility import EVERYTHING_SEEN, focus
from dashboard.history.columns.instants import InstantMatrix
from gpudeck.measures.metrics import Absence
from tests.unit.fleets import MONO, add_node

AT = 1_763_640_000
GIB = 2.0**30
MINUTE = AT // 60 * 60


def reads(uuids: list[str], node: str, **columns: list[float]) -> MomentReads:
    pairs = [(uuid, node) for uuid in uuids]

    def matrix(key: str) -> InstantMatrix:
        values = np.array([columns.get(key, [np.nan] * len(uuids))])
        why = np.where(np.isnan(values), Absence.UNSUPPORTED, Absence.PRESENT).astype(np.uint8)
        return InstantMatrix(pairs, values, why, 1)

    return MomentReads({key: matrix(key) for key in METRICS}, pd.DataFrame())


def tasks(*rows: tuple[str, str, str | None, float]) -> pd.DataFrame:
    return pd.DataFrame([(MINUTE, gpu, node, f"t{at}", user, "compute", mem, 50.0)
                         for at, (gpu, node, user, mem) in enumerate(rows)], columns=[
        "t", "gpu", "node", "task", "user", "kind", "mem_max_bytes", "sm_max_pct"])


def four_gpus() -> tuple[Any, list[str], str]:
    fleet = Fleet(1)
    node = add_node(fleet, gpus=4)
    return (ground(fleet, focus(fleet, EVERYTHING_SEEN), METRICS, MONO), list(fleet.uuids[:4]),
            node.hello.node_id)


def test_wasted_owned_leased_and_free_then() -> None:
    on, (idle, young, free, cordoned), node = four_gpus()
    since, mem_bytes = AT - random.randrange(700, 80_000), random.randrange(5, 60) * GIB
    moment = reads([idle, young, free, cordoned], node, util_max_pct=[3.0, 0.0, 0.0, 0.0],
                   util_pct=[3.0, 0.0, 0.0, 0.0], mem_used_bytes=[mem_bytes, mem_bytes, 0.0, 0.0])
    moment.tasks = tasks((idle, node, "kavya", mem_bytes), (young, node, "alice", mem_bytes),
                         (young, node, "bob", mem_bytes))
    assert moment.held_idle() == sorted([(idle, node), (young, node)])
    pool = PastPool([PastLease(node, "alice", (young,), 1)], [PastLease("", "dilara", (), 3)])
    view = moment_view(moment, {idle: float(since), young: AT - 599.0}, pool, {(cordoned, node)},
                       on, AT, is_whole=True)
    owner = struct.unpack("<4H", view.owner)
    assert view.names[owner[0]] == "kavya"
    assert owner[2:] == (NO_TASK, NO_TASK)
    assert (view.wasted.gpus, view.wasted.mem_bytes) == (1, mem_bytes)
    assert struct.unpack("<I", view.wasted.slots) == (0,)
    assert struct.unpack("<I", view.wasted.since) == (since,)
    lessee = struct.unpack("<4H", view.lessee)
    assert [number != NO_TASK for number in lessee] == [False, True, False, False]
    assert view.lessees == ["alice"]
    assert (view.gpus_free, view.free) == (1, bytes([0b0100]))
    assert view.queue == PastQueue(1, "dilara", 3)
    assert moment_view(moment, {}, pool, (), on, AT, is_whole=False).queue is None


def test_a_minute_that_no_task_is_told_of_yet_is_as_the_one_before() -> None:
    rows = tasks(("g", "n", "old", GIB), ("g", "n", "new", GIB), ("h", "m", "other", GIB))
    rows.loc[[0, 2], "t"] = MINUTE - 60
    assert list(newest_minute(rows)["user"]) == ["new", "other"]
