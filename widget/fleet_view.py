"""What the widget shows of a fleet: from what the hub tells to what the browser draws. Pure."""

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudeck.action_table import ROWS
from gpudeck.action_views import CommandView

from .machine_view import Item, task_of

METRICS = ("util_pct", "mem_used_bytes")
# As assets/parts/gauges.mjs reads them: a level up to FULL, or why there is none.
FULL = 239
CODES = {"denied": 250, "unsupported": 251, "stale": 252, "lost": 253, "unknown": 255}
FREE_MAX = 12  # nodes that are listed
QUOTAS_MAX = 12
DONE_MAX = 5
LEASES_MAX = 12


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Of the owners that a token names: their quotas, what others have `done` to their tasks, and
    of the pool all leases and claims, in the order of the queue."""

    owners: Collection[str] = ()
    quotas: Sequence[Item] = ()
    done: Sequence[CommandView] = ()
    leases: Sequence[Item] = ()
    claims: Sequence[Item] = ()


def ordered(gpus: Sequence[Item]) -> list[Item]:
    """Those that can be used: a board that is split into MIG instances is not one of them."""
    split = {gpu["facts"].get("parent_uuid") for gpu in gpus}
    return sorted((gpu for gpu in gpus if gpu["uuid"] not in split),
                  key=lambda gpu: (gpu["host"], gpu["index"], gpu["place"]))


def fleet_picture(gpus: Sequence[Item], tasks: Sequence[Item], hub: str, now: float,
                  why_no_tasks: str, every_s: float, own: OwnWork) -> Item:
    """`gpus` as `ordered` gave them."""
    rows: list[Item] = []
    for gpu in gpus:
        if not rows or rows[-1]["node"] != gpu["node"]:
            rows.append({"node": gpu["node"], "host": gpu["host"], "count": 0, "places": []})
        rows[-1]["count"] += 1
        rows[-1]["places"].append(gpu["place"])
    free = [gpu for gpu in gpus if gpu["is_free"]]
    places = {gpu["uuid"]: str(gpu["place"]) for gpu in gpus}
    return {
        "kind": "fleet", "at": now, "hub": hub, "reader": "ok", "every_s": every_s,
        "words": f"{len(rows)} nodes, {len(gpus)} GPUs, {len(free)} free",
        "rows": rows, "why_no_tasks": why_no_tasks, "detail": "", "free": _free_by_node(free),
        "tasks": [task_of(task, None, places) for task in tasks],
        "quotas": _quotas(own.quotas), "done": _done(own.done), "leases": _leases(own, places),
        "claims": _claims(own),
    }


def _leases(own: OwnWork, places: Mapping[str, str]) -> list[Item]:
    """Those that end first."""
    mine = sorted((each for each in own.leases if each["owner"] in own.owners),
                  key=lambda each: (each["until"], each["id"]))
    return [{"host": each["host"], "gpus": [places.get(uuid, "?") for uuid in each["gpus"]],
             "share_pct": each["share_pct"], "until": each["until"], "command": each["command"],
             "idle_since": each["idle_since"]} for each in mine[:LEASES_MAX]]


def _claims(own: OwnWork) -> list[Item]:
    return [{name: each[name] for name in ("place", "asks", "why", "starts_at", "estimate")}
            for each in own.claims if each["owner"] in own.owners][:LEASES_MAX]


def _done(commands: Sequence[CommandView]) -> list[Item]:
    """Newest first."""
    found = sorted(commands, key=lambda each: -each.requested_at)[:DONE_MAX]
    labels: dict[str, str] = {row.id: row.label for row in ROWS.values()}
    return [{"words": f"{labels.get(each.action, each.action)}: {_outcome(each)}",
             "by": each.by.name, "host": each.host, "at": each.requested_at,
             "reason": each.reason} for each in found]


def _outcome(command: CommandView) -> str:
    return "done" if command.state == "done" else command.sentence or command.state


def _quotas(quotas: Sequence[Item]) -> list[Item]:
    """One of several names may be told of a sum that another one is told of as well."""
    found = {(each["quota"], each["limit"], each["holder"]): {
        name: each[name] for name in ("quota", "mode", "limit", "holder", "used", "most", "is_over",
                                      "is_whole", "sentence", "goes", "ladder")}
        for each in quotas}
    return [*found.values()][:QUOTAS_MAX]


def _free_by_node(free: Sequence[Item]) -> list[Item]:
    """The nodes with most free GPUs first."""
    found: dict[str, Item] = {}
    for gpu in free:
        entry = found.setdefault(gpu["node"], {"host": gpu["host"], "gpus": 0, "name": gpu["name"]})
        entry["gpus"] += 1
    return sorted(found.values(), key=lambda entry: (-entry["gpus"], entry["host"]))[:FREE_MAX]


def cells_of(gpus: Sequence[Item]) -> bytes:
    """Of each metric the codes of all GPUs, then the values, in percent, as float32; what is not
    there is NaN."""
    shares = [[_share(gpu, metric) for gpu in gpus] for metric in METRICS]
    codes = b"".join(bytes(_code(gpu, metric, share) for gpu, share in zip(gpus, line, strict=True))
                     for metric, line in zip(METRICS, shares, strict=True))
    values = [float("nan") if share is None else 100 * share for line in shares for share in line]
    return codes + struct.pack(f"<{len(values)}f", *values)


def _share(gpu: Item, metric: str) -> float | None:
    value = gpu["values"].get(metric)
    of = 100.0 if metric == "util_pct" else gpu["facts"].get("mem_total_bytes")
    return None if gpu["state"] != "ok" or value is None or not of else min(value / of, 1.0)


def _code(gpu: Item, metric: str, share: float | None) -> int:
    if gpu["state"] != "ok":
        return CODES[gpu["state"]]
    if share is None:
        return CODES.get(gpu["missing"].get(metric, "unknown"), CODES["unknown"])
    return round(share * FULL)


def trouble(shown: Item, hub: str, now: float, why: str) -> Item:
    """What was seen last stays, marked as what it is."""
    before: dict[str, Any] = {
        "kind": "fleet", "at": now, "hub": hub, "words": "nothing seen yet", "rows": [],
        "free": [], "tasks": [], "quotas": [], "done": [], "leases": [], "claims": [],
        "why_no_tasks": "", "every_s": 2.0}
    return {**before, **shown, "reader": "failed", "detail": why}
