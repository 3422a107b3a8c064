"""Messages of the live socket by their names, as docs/internals/live.md describes them. Types of
the pages' JavaScript are made from this table, and tests hold it to what is sent."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from gpudeck.contract.action_views import CommandView

from ..actions.views import HoldStateView
from ..alerts.views import AlertView
from ..fleet.events_views import EventView
from ..pool.views import ClaimChangeView, LeaseView

# Of a node: its number, its id, its host name, and its site where this hub views others.
NodeRow = Annotated[list[int | str],
                    Meta(extra={"typescript": "[number, string, string, string?]"})]

Layout = TypedDict("Layout", {  # `from` is a word of Python
    "epoch": int, "from": int, "nodes": list[NodeRow], "models": list[str], "uuid": list[str],
    "node": list[int], "index": list[int], "model": list[int],
    "instances": list[tuple[int, int, str, str]]})


class Cells(TypedDict):
    epoch: int
    metric: str
    at: float
    n: int
    cells: bytes
    mask: bytes | None
    matched: int
    exact: bytes | None


class LineSamples(TypedDict):
    uuid: str
    at: bytes
    values: bytes
    absent: bytes
    states: bytes


class Lines(TypedDict):
    at: float
    gpus: list[LineSamples]


class Owners(TypedDict):
    epoch: int
    names: list[str]
    owner: bytes
    paused: bytes
    slots: NotRequired[bytes]  # of changes


class Leases(TypedDict):
    epoch: int
    names: list[str]
    owner: bytes
    until: bytes


class NodeCounts(TypedDict):
    live: int
    suspect: int
    silent: int


class GpuCounts(TypedDict):
    total: int
    ok: int
    stale: int
    lost: int
    offline: int
    error: int
    free: int


class OutOfService(TypedDict):
    words: list[str]
    slots: bytes
    states: bytes


class WastedNow(TypedDict):
    gpus: int
    mem_bytes: float
    gpu_hours_today: float | None
    slots: bytes
    since: bytes
    mem: bytes


class SiteCounts(TypedDict):
    name: str
    url: str
    state: Literal["connecting", "live", "away"]
    since: float | None
    why: str
    nodes: int
    gpus: int
    left_out: int


class Totals(TypedDict):
    at: float
    nodes: NodeCounts
    gpus: GpuCounts
    healthy: int
    simulated: int
    epoch: int
    free: bytes
    service: OutOfService
    memory: bytes
    wasted: WastedNow
    tasks: int
    sites: NotRequired[list[SiteCounts]]
    util_mean_pct: float | None
    power_w: float | None
    mem_used_bytes: float | None
    mem_total_bytes: float | None
    hot: int | None
    throttled: int | None


class FilterReply(TypedDict):
    text: str
    ok: bool
    error: str | None
    at: int | None


class NewestEvents(TypedDict):
    newest: list[EventView]


class Bye(TypedDict):
    reason: str


MESSAGES: dict[str, Any] = {
    "layout": Layout, "cells": Cells, "lines": Lines, "owners": Owners, "leases": Leases,
    "totals": Totals, "filter": FilterReply, "events": NewestEvents, "bye": Bye,
    "command": CommandView, "hold": HoldStateView, "alert": AlertView, "lease": LeaseView,
    "claim": ClaimChangeView}
