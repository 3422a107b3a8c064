"""Content of the widget for a fleet: from the hub's answers to what the browser draws. Pure."""

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpudeck.contract.action_table import ROWS
from gpudeck.contract.action_views import CommandView
from gpudeck.words.actions import many

from .machine_view import Item, task_of
from .pictures import (
    ClaimPicture,
    DonePicture,
    FleetPicture,
    FreePicture,
    LeasePicture,
    NodePicture,
    QuotaPicture,
)

METRICS = ("util_pct", "mem_used_bytes")
# As assets/parts/gauges.mjs reads them: a level up to FULL, or the reason for its absence.
FULL = 239
CODES = {"denied": 250, "unsupported": 251, "stale": 252, "lost": 253, "unknown": 255}
FREE_MAX = 12  # nodes that are listed
QUOTAS_MAX = 12
DONE_MAX = 5
LEASES_MAX = 12


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Work of the owners that a token names: their quotas, actions of others on their tasks
    (`done`), and of the pool all leases and claims, in the order of the queue."""

    owners: Collection[str] = ()
    quotas: Sequence[Item] = ()
    done: Sequence[CommandView] = ()
    leases: Sequence[Item] = ()
    claims: Sequence[Item] = ()


def ordered(gpus: Sequence[Item]) -> list[Item]:
    """Return the GPUs that can be used, sorted: a board that is split into MIG instances is not
    one."""
    split = {gpu["facts"].get("parent_uuid") for gpu in gpus}
    return sorted((gpu for gpu in gpus if gpu["uuid"] not in split),
                  key=lambda gpu: (gpu["host"], gpu["index"], gpu["place"]))


def fleet_picture(gpus: Sequence[Item], tasks: Sequence[Item], hub: str, now: float,
                  why_no_tasks: str, every_s: float, own: OwnWork) -> FleetPicture:
    """Build the picture of a fleet. `gpus` as `ordered` returned them."""
    rows: list[NodePicture] = []
    for gpu in gpus:
        if not rows or rows[-1]["node"] != gpu["node"]:
            rows.append({"node": gpu["node"], "host": gpu["host"], "count": 0, "places": []})
        rows[-1]["count"] += 1
        rows[-1]["places"].append(gpu["place"])
    free = [gpu for gpu in gpus if gpu["is_free"]]
    places = {gpu["uuid"]: str(gpu["place"]) for gpu in gpus}
    return {
        "kind": "fleet", "at": now, "hub": hub, "reader": "ok", "every_s": every_s,
        "words": f"{many(len(rows), 'node')}, {many(len(gpus), 'GPU')}, {len(free)} free",
        "rows": rows, "why_no_tasks": why_no_tasks, "detail": "", "free": _free_by_node(free),
        "tasks": [task_of(task, None, places) for task in tasks],
        "quotas": _quotas(own.quotas), "done": _recent_actions(own.done),
        "leases": _leases(own, places), "claims": _claims(own),
    }


def _leases(own: OwnWork, places: Mapping[str, str]) -> list[LeasePicture]:
    """Return the owners' leases, those that end first in front."""
    mine = sorted((lease for lease in own.leases if lease["owner"] in own.owners),
                  key=lambda lease: (lease["until"], lease["id"]))
    return [{"host": lease["host"], "gpus": [places.get(uuid, "?") for uuid in lease["gpus"]],
             "share_pct": lease["share_pct"], "until": lease["until"], "command": lease["command"],
             "idle_since": lease["idle_since"]} for lease in mine[:LEASES_MAX]]


def _claims(own: OwnWork) -> list[ClaimPicture]:
    mine = [claim for claim in own.claims if claim["owner"] in own.owners]
    return [{"place": claim["place"], "asks": claim["asks"], "why": claim["why"],
             "starts_at": claim["starts_at"], "estimate": claim["estimate"]}
            for claim in mine[:LEASES_MAX]]


def _recent_actions(commands: Sequence[CommandView]) -> list[DonePicture]:
    """Return the newest actions first."""
    newest = sorted(commands, key=lambda command: -command.requested_at)[:DONE_MAX]
    labels: dict[str, str] = {row.id: row.label for row in ROWS.values()}
    return [{"words": f"{labels.get(command.action, command.action)}: {_outcome(command)}",
             "by": command.by.name, "host": command.host, "at": command.requested_at,
             "reason": command.reason} for command in newest]


def _outcome(command: CommandView) -> str:
    return "done" if command.state == "done" else command.sentence or command.state


def _quotas(quotas: Sequence[Item]) -> list[QuotaPicture]:
    """Merge duplicates: a sum may be reported for several names."""
    by_key: dict[tuple[str, str, str], QuotaPicture] = {
        (quota["quota"], quota["limit"], quota["holder"]): {
            "quota": quota["quota"], "mode": quota["mode"], "limit": quota["limit"],
            "holder": quota["holder"], "used": quota["used"], "most": quota["most"],
            "is_over": quota["is_over"], "is_whole": quota["is_whole"],
            "sentence": quota["sentence"], "goes": quota["goes"], "ladder": quota["ladder"]}
        for quota in quotas}
    return [*by_key.values()][:QUOTAS_MAX]


def _free_by_node(free: Sequence[Item]) -> list[FreePicture]:
    """Return the nodes with most free GPUs first."""
    by_node: dict[str, FreePicture] = {}
    for gpu in free:
        entry = by_node.setdefault(
            gpu["node"], {"host": gpu["host"], "gpus": 0, "name": gpu["name"]})
        entry["gpus"] += 1
    return sorted(by_node.values(), key=lambda entry: (-entry["gpus"], entry["host"]))[:FREE_MAX]


def cells_of(gpus: Sequence[Item]) -> bytes:
    """Pack the codes of all GPUs, metric by metric, then the values, in percent, as float32; a
    missing one is NaN."""
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


def trouble(picture: FleetPicture | None, hub: str, now: float, why: str) -> FleetPicture:
    """Return the last picture, marked as out of date."""
    last: FleetPicture = picture or {
        "kind": "fleet", "at": now, "hub": hub, "words": "nothing seen yet", "rows": [],
        "free": [], "tasks": [], "quotas": [], "done": [], "leases": [], "claims": [],
        "why_no_tasks": "", "every_s": 2.0, "reader": "failed", "detail": why}
    return {**last, "reader": "failed", "detail": why}
