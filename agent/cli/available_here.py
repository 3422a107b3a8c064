"""Availability of this machine's GPUs, with the same answers as a hub gives: available, or why not.
Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudeck.measures.availability import REASONS, Reason, is_use, sentence, why_not

from ..readings import ProcessReading, Reading, conditions
from ..telemetry.status_table import Item

if TYPE_CHECKING:
    from gpudeck.contract.pool_messages import PoolShown


def with_availability(items: Iterable[Item], reading: Reading,
                      processes: Iterable[ProcessReading], pool: "PoolShown | None") -> list[Item]:
    """Add `is_free` and `why_not_free`, as in REST. `items`: GPUs of this reading. `pool`: that of
    this machine's agent, which knows what runs with a lease; None: it has no pool."""
    users_of: dict[str, list[ProcessReading]] = {}
    for process in processes:
        if is_use(process.mem_used_bytes, process.sm_pct, process.kind):
            users_of.setdefault(process.gpu_uuid, []).append(process)
    split = {gpu_facts.parent_uuid for gpu_facts in reading.facts}
    pending = {gpu.uuid for gpu in reading.gpus if gpu.value("rows_pending")}
    pooled = set() if pool is None else {gpu.uuid for gpu in pool.gpus}
    leased = set() if pool is None else {uuid for lease in pool.held for uuid in lease.uuids}
    pool_reasons = {} if pool is None else {gpu.uuid: (gpu.reason, gpu.why)
                                            for gpu in pool.unavailable}
    why: dict[str, tuple[str, str] | None] = {}
    for gpu, facts in zip(reading.gpus, reading.facts, strict=True):
        users = [] if gpu.uuid in pooled else users_of.get(gpu.uuid, [])
        reason = why_not(replace(
            conditions(gpu, facts.parent_uuid is not None, gpu.uuid in split,
                       (facts.parent_uuid or gpu.uuid) in pending),
            is_used=bool(users), is_paused=all(process.state == "paused" for process in users),
            is_leased=gpu.uuid in leased))
        why[gpu.uuid] = _first(reason, gpu.value("mem_used_bytes"), pool_reasons.get(gpu.uuid))
    return [{**item, "is_free": entry is None, "why_not_free": None if entry is None else {
        "reason": entry[0], "why": entry[1]}} for item in items for entry in (why[item["uuid"]],)]


def _first(reason: Reason | None, mem_used_bytes: float | None, pool_reason: tuple[str, str] | None
           ) -> tuple[str, str] | None:
    """Return the reason that comes first in REASONS. `pool_reason`: that of the pool."""
    own = None if reason is None else (reason, sentence(reason, mem_used_bytes))
    if own is None or pool_reason is None:
        return own or pool_reason
    return min(own, pool_reason, key=lambda candidate: REASONS.index(candidate[0])
               if candidate[0] in REASONS else len(REASONS))
