"""`gpudeck pool --hub URL`: the pool of a fleet, as its page shows it. Pure but for `read`."""

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpudeck.language.times import span_words
from gpudeck.words.actions import printable

from ..telemetry.status_table import Column, Item, table
from .nodes import node_id_of

if TYPE_CHECKING:
    from gpudeck.client.hub import Client


def read(client: "Client", node: str | None) -> Item:
    """Return `nodes`, `leases` and `claims` as in REST; nodes and leases of one node if it is
    named. The queue is always the whole fleet's."""
    node_id = None if node is None else node_id_of(client, node)
    lists = {"nodes": client.hub.all("pool/nodes"), "leases": client.hub.all("leases")}
    if node_id is not None:
        lists = {name: [row for row in items if row["node"] == node_id]
                 for name, items in lists.items()}
    return {**lists, "claims": client.hub.all("claims")}


def as_json(pool: Item) -> str:
    return json.dumps(pool, indent=2)


def lines(pool: Item, now: float) -> list[str]:
    leased = {uuid for lease in pool["leases"] for uuid in lease["gpus"]}
    nodes = [_node_row(node, leased) for node in pool["nodes"]]
    free, gpus = (sum(node[name] for node in nodes) for name in ("free", "gpus"))
    places = {gpu["uuid"]: gpu["place"] for node in pool["nodes"] for gpu in node["gpus"]}
    waiting = pool["claims"]
    return [
        table(_NODES, nodes, "no node of the pool that you may see"), "",
        table(_lease_columns(places, now), pool["leases"], "no lease"), "",
        *(_waits(claim, now) for claim in waiting), *([""] if waiting else []),
        f"{free} of {gpus} GPUs free on {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}; "
        f"{len(pool['leases'])} {'lease' if len(pool['leases']) == 1 else 'leases'}, "
        f"{len(waiting)} in the queue"]


def _node_row(node: Item, leased: set[str]) -> Item:
    """Return the row of a node. Free: neither leased, not even a share of it, nor unavailable."""
    troubled = [gpu for gpu in node["gpus"] if gpu["trouble"] and gpu["uuid"] not in leased]
    leased_count = sum(gpu["uuid"] in leased for gpu in node["gpus"])
    return {"host": node["host"], "models": ", ".join(sorted({gpu["model"]
                                                              for gpu in node["gpus"]})),
            "gpus": len(node["gpus"]), "free": len(node["gpus"]) - leased_count - len(troubled),
            "leased": leased_count, "why": "; ".join(f"{gpu['place']}: {gpu['trouble']}"
                                                     for gpu in troubled)}


def _text(key: str) -> Callable[[Item], str]:
    return lambda item: str(item[key])


_NODES: tuple[Column, ...] = (
    ("NODE", False, _text("host")), ("GPUS", True, _text("gpus")), ("FREE", True, _text("free")),
    ("LEASED", True, _text("leased")), ("MODEL", False, _text("models")),
    ("NOT AVAILABLE", False, _text("why")))


def _lease_columns(places: dict[str, str], now: float) -> Sequence[Column]:
    return (
        ("OWNER", False, _text("owner")), ("NODE", False, _text("host")),
        ("GPU", False, lambda item: ",".join(sorted(
            (places.get(uuid, uuid) for uuid in item["gpus"]),
            key=lambda place: (len(place), place))) + (
            "" if item["share_pct"] == 100 else f" ({item['share_pct']:g} %)")),
        ("ENDS", False, lambda item: f"in {span_words(item['until'] - now)}"
         if item["until"] > now else f"overdue by {span_words(now - item['until'])}"),
        ("UNUSED FOR", False, lambda item: "" if item["idle_since"] is None
         else span_words(now - item["idle_since"])),
        ("STATE", False, _text("state")), ("LEASE", False, _text("id")))


def _waits(claim: Item, now: float) -> str:
    if claim["starts_at"] is not None and claim["starts_at"] > now:
        start = time.strftime("%a %d %b %H:%M", time.localtime(claim["starts_at"]))
        what = f"reserved from {start} for {span_words(claim['term_s'])}: {claim['asks']}"
    else:
        estimate = f"; {claim['estimate']}" if claim["estimate"] else ""
        what = f"has waited {span_words(now - claim['asked_at'])}: {claim['why']}{estimate}"
    place = f"{claim['place']}." if claim["place"] else "-"
    return printable(f"{place:>4} {claim['owner']} {what} ({claim['id']})")
