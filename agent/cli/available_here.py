"""This machine's GPUs with the same answers as a hub gives: available, or why not. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudeck.availability import REASONS, Reason, is_use, sentence, why_not

from ..readings import ProcessReading, Reading, conditions
from ..telemetry.status_table import Item

if TYPE_CHECKING:
    from gpudeck.pool.messages import PoolShown


def with_availability(items: Iterable[Item], reading: Reading,
                      processes: Iterable[ProcessReading], pool: "PoolShown | None") -> list[Item]:
    """As REST has it: `is_free` and `why_not_free`. `items`: of this reading. `pool`: of this
    machine's agent; None: it has none. Where there is one, that knows what runs with a lease."""
    on: dict[str, list[ProcessReading]] = {}
    for each in processes:
        if is_use(each.mem_used_bytes, each.sm_pct, each.kind):
            on.setdefault(each.gpu_uuid, []).append(each)
    split = {each.parent_uuid for each in reading.facts}
    pending = {gpu.uuid for gpu in reading.gpus if gpu.value("rows_pending")}
    pooled = set() if pool is None else {each.uuid for each in pool.gpus}
    leased = set() if pool is None else {uuid for each in pool.held for uuid in each.uuids}
    told = {} if pool is None else {each.uuid: (each.reason, each.why)
                                    for each in pool.unavailable}
    why: dict[str, tuple[str, str] | None] = {}
    for gpu, facts in zip(reading.gpus, reading.facts, strict=True):
        users = [] if gpu.uuid in pooled else on.get(gpu.uuid, [])
        reason = why_not(replace(
            conditions(gpu, facts.parent_uuid is not None, gpu.uuid in split,
                       (facts.parent_uuid or gpu.uuid) in pending),
            is_used=bool(users), is_paused=all(each.state == "paused" for each in users),
            is_leased=gpu.uuid in leased))
        why[gpu.uuid] = _first(reason, gpu.value("mem_used_bytes"), told.get(gpu.uuid))
    return [{**item, "is_free": found is None, "why_not_free": None if found is None else {
        "reason": found[0], "why": found[1]}} for item in items for found in (why[item["uuid"]],)]


def _first(here: Reason | None, mem_used_bytes: float | None, told: tuple[str, str] | None
           ) -> tuple[str, str] | None:
    """`told`: by the pool."""
    own = None if here is None else (here, sentence(here, mem_used_bytes))
    if own is None or told is None:
        return own or told
    return min(own, told, key=lambda each: REASONS.index(each[0])
               if each[0] in REASONS else len(REASONS))
