"""The fleet in exact numbers, for a hub that views this one: docs/internals/live.md. Pure."""

from typing import Any

import numpy as np

from gpudeck.measures.metrics import COLUMNS

from .fleet import Fleet, Node, NodeState
from .visibility import VisibleFleet

NODE_STATES: tuple[NodeState, ...] = ("live", "suspect", "silent")
METRICS = [metric.key for metric in COLUMNS]


def facts(fleet: Fleet, visible: VisibleFleet) -> dict[str, Any]:
    """Return what does not change every second: nodes and GPUs, in the order of the numbers."""
    places = np.full(len(fleet.node_ids), -1, np.int32)
    places[[fleet.all_nodes[node_id].at for node_id in visible.node_ids]] = np.arange(
        len(visible.node_ids))
    slots = visible.slots
    return {"epoch": visible.epoch, "metrics": METRICS,
            "nodes": [_node(node) for node in visible.nodes(fleet)],
            "gpus": [fleet.facts[slot] for slot in slots.tolist()],
            "node": places[fleet.node_at[slots]].astype("<i4").tobytes()}


def _node(node: Node) -> dict[str, Any]:
    hello = node.hello
    return {"id": hello.node_id, "host": hello.host, "backend": hello.backend,
            "driver": hello.driver_version, "agent": hello.agent_version}


def numbers(fleet: Fleet, visible: VisibleFleet, now: float, mono: float) -> dict[str, Any]:
    """`age`: seconds since each GPU was read, infinite where it never was."""
    slots = visible.slots
    ages = np.maximum(mono - fleet.sampled_mono[slots], 0.0)
    states = [NODE_STATES.index(node.state) for node in visible.nodes(fleet)]
    return {"epoch": visible.epoch, "at": now, "n": len(slots),
            "values": fleet.numbers(slots).astype("<f4").tobytes(),
            "absent": fleet.absent[slots].tobytes(),
            "states": fleet.statuses(mono)[slots].tobytes(),
            "age": ages.astype("<f4").tobytes(), "nodes": bytes(states)}
