"""Panels that the hub writes beside the charts of a GPU or a node, and in the drawer of the Fleet
page: service, limits, MIG, MPS, quotas, facts, and whether actions are stopped there. The page
asks while somebody looks (assets/reading/machine_panels.mjs), and gets what has changed."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import PAGE, Client
from gpudeck.errors import CommandError
from gpudeck.markup import make
from gpudeck.measures.metrics import metric

from ..access.policy import Role
from .hold_buttons import hold_line
from .limit_panels import limits_panel, mig_panel, note
from .machine_facts import (
    board_facts,
    facts_list,
    health_facts,
    host_facts,
    limit_facts,
    node_facts,
    peer_facts,
    topology,
)
from .mps_panel import mps_panel
from .quotas_here import quotas_here
from .reading import Parts, Reading, View, viewer
from .service_panel import ServicePlace, own_repair, service_panel
from .setting_forms import board_names, node_names

Item = dict[str, Any]
Items = list[Item]
Note = Sequence[Component]
EVERY_S = 2.0
MOST_TASKS = 50  # that can be ended at once here
NONE_ADVISED = 0
Text = Annotated[str, Meta(max_length=256)]


class MachineView(View):
    """A machine that somebody looks at: a GPU by its UUID, or a node by its id."""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("gpu", "node"))
    gpu: Text = ""
    node: Text = ""


def answer(client: Client, view: MachineView, now: float) -> Parts:
    """Return the panels. One whose facts did not come is left out: it stays as it is."""
    if view.gpu:
        return _gpu_parts(client, view.gpu, view.zone, now)
    return _node_parts(client, view.node, view.zone, now) if view.node else {}


READING = Reading(MachineView, answer, EVERY_S, "panel")


def _gpu_parts(client: Client, uuid: str, zone: str, now: float) -> Parts:
    gpu = next(iter(client.hub.items("gpus", uuid=uuid)), None)
    if gpu is None:
        return {}
    parts: Parts = {"panel-board": _titled("Board", facts_list(board_facts(gpu)))}
    if (node := _node(client, gpu["node"])) is not None:
        parts["panel-node"] = facts_list(node_facts(node))
    if gpu.get("link"):
        return parts  # nothing here acts on the GPU of another site
    if node is not None:
        others = _gpus_of(client, node["id"]) if node["links"] else []
        places = {other["uuid"]: other["place"] for other in others or []}
        parts["panel-peers"] = facts_list(peer_facts(uuid, node["links"] or [], places))
    return parts | _gpu_acts(client, gpu, _age_note(node), zone, now)


def _gpu_acts(client: Client, gpu: Item, age_note: Note, zone: str, now: float) -> Parts:
    node, uuid, person = gpu["node"], gpu["uuid"], viewer(client)
    may_act, parts = person.may(Role.OPERATOR), Parts()
    if (hold := _one(client, "hold")) is not None:
        parts["panel-hold"] = hold_line(node, gpu["host"], hold, person, now)
    if (repairs := _items(client, "repairs", node=node)) is not None:
        place = ServicePlace(node, gpu["facts"]["parent_uuid"] or uuid, board_names(gpu), may_act,
                             zone, gpu["tasks"][:MOST_TASKS], _advice(gpu))
        parts["panel-service"] = _panel("service", "Service", [
            *age_note, *service_panel(place, repairs)])
    if (limits := _items(client, "limits", node=node)) is not None:
        parts["panel-limits"] = _panel("limits", "Limits", [
            *age_note, *limits_panel(gpu, limits, may_act, zone)])
    if (boards := _items(client, "mig", node=node)) is not None:
        board = next((one for one in boards if one["gpu"] == uuid), None)
        parts["panel-mig"] = None if board is None else _panel(
            "mig", "MIG", [*age_note, *mig_panel(board, board_names(gpu), may_act)])
    if (quotas := _items(client, _quotas_of(node), gpu=uuid)) is not None:
        parts["panel-quotas"] = _panel("quota-panel", "Quotas", quotas_here(quotas, "GPU"))
    return parts


def _node_parts(client: Client, node: str, zone: str, now: float) -> Parts:
    if (machine := _node(client, node)) is None:
        return {}
    gpus = _gpus_of(client, node)
    parts: Parts = {
        "panel-host": _titled("Host", facts_list(host_facts(machine["host_load"]))),
        "panel-node": _titled("Agent", facts_list(node_facts(machine)))}
    if gpus is not None:
        parts |= {
            "panel-now": _titled("Limits in force", facts_list(limit_facts(gpus))),
            "panel-health": _titled("Health", facts_list(health_facts(gpus))),
            "panel-links": _titled("Links between GPUs", topology(machine["links"] or [], gpus))}
    if machine.get("link"):
        return parts  # nothing here acts on the node of another site
    return parts | _node_acts(client, machine, gpus, zone, now)


def _node_acts(client: Client, machine: Item, gpus: Items | None, zone: str, now: float) -> Parts:
    node, person, age_note = machine["id"], viewer(client), _age_note(machine)
    may_act, parts, hold = person.may(Role.OPERATOR), Parts(), _one(client, "hold")
    if hold is not None and (repairs := _items(client, "repairs", node=node)) is not None:
        place = ServicePlace(node, None, node_names(machine["host"]), may_act, zone,
                             _tasks_left(client, node, repairs))
        parts["lines-acts"] = [
            make("div.service", service_panel(place, repairs)),
            hold_line(node, machine["host"], hold, person, now)]
    if gpus is not None and (reports := _items(client, "mps", node=node)) is not None:
        indices = {gpu["uuid"]: gpu["index"] for gpu in gpus}
        parts["panel-mps"] = _panel("limits", "MPS", [*age_note, *mps_panel(
            node, machine["host"], next(iter(reports), None), indices, may_act)])
    if (quotas := _items(client, _quotas_of(node))) is not None:
        parts["panel-quotas"] = _panel("quota-panel", "Quotas", quotas_here(quotas, "node"))
    return parts


def _titled(title: str, inside: Component) -> list[Component]:
    return [make("h3", title), inside]


def _panel(look: str, title: str, inside: Sequence[Component]) -> list[Component]:
    return _titled(title, make(f"div.{look}", [*inside]))


def _node(client: Client, ident: str) -> Item | None:
    return _one(client, f"nodes/{quote(ident, safe='')}")


def _age_note(node: Item | None) -> Note:
    """Return what stands above facts that only the node knows, once it reports them no more."""
    return [note("The node is silent: this is its last report, and may have changed.")
            ] if node is not None and node["state"] == "silent" else []


def _tasks_left(client: Client, node: str, repairs: Items) -> list[str]:
    """Return the tasks that a drain has left when its time ended."""
    own = own_repair(repairs, None)
    if own is None or not own["is_overdue"]:
        return []
    return [task["id"] for task in _items(
        client, "tasks", node=node, limit=str(MOST_TASKS), sort="mem_used_bytes", order="desc")
        or []]


def _advice(gpu: Item) -> str:
    code = int(gpu["values"].get("recovery_action", NONE_ADVISED))
    words = metric("recovery_action").words or {}
    return "" if code == NONE_ADVISED else words.get(code, f"code {code}")


def _quotas_of(node: str) -> str:
    return f"nodes/{quote(node, safe='')}/quotas"


def _items(client: Client, path: str, **query: str) -> Items | None:
    """Return the items; None: the hub does not give them now."""
    try:
        return client.hub.items(path, **query)
    except CommandError:
        return None


def _gpus_of(client: Client, node: str) -> Items | None:
    return _items(client, "gpus", node=node, limit=str(PAGE))


def _one(client: Client, path: str) -> Item | None:
    try:
        return client.hub.get(path)
    except CommandError:
        return None
