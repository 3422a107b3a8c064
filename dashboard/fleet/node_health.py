"""Health of a node: that it is healthy, or the one thing that is wrong with it. Pure."""

from typing import Literal

from msgspec import Struct

from gpudeck.contract.wire import BEAT_EVERY_S
from gpudeck.words.actions import age

from .available_gpus import maintenance_of
from .fleet import STALE_AFTER_S, Fleet, Node
from .moved_gpus import successor_of

HealthWord = Literal["healthy", "silent", "suspect", "refused", "no_driver", "driver_hung",
                     "reader_failing", "starting", "maintenance"]
OF_READER: dict[str, HealthWord] = {
    "hung": "driver_hung", "no_driver": "no_driver", "no_library": "no_driver",
    "failed": "reader_failing", "no_gpus": "reader_failing", "released": "reader_failing",
    "starting": "starting"}


class NodeHealthView(Struct):
    """`why`: for people."""

    word: HealthWord
    why: str


def health(fleet: Fleet, node: Node, mono: float) -> NodeHealthView:
    """Return a node's health; what makes its values old comes first."""
    if node.state == "silent":
        return NodeHealthView("silent", _silent_words(fleet, node))
    if node.refused_s(mono) > 0 and node.refusal is not None:
        return NodeHealthView("refused", f"Refused: {node.refusal.why}")
    if node.state == "suspect":
        return NodeHealthView("suspect", "No data for a moment")
    if (reader_health := _of_reader(node, mono)) is not None:
        return reader_health
    if (maintenance := maintenance_of(fleet, node.hello.node_id, mono)) is not None:
        return NodeHealthView("maintenance", f"In maintenance: {maintenance.why}")
    return NodeHealthView("healthy", "Live")


def successor(fleet: Fleet, node: Node) -> Node | None:
    """Return the node that reports all GPUs of a silent one: the same machine, installed again.
    None: none does, or it is of a group that need not know of the other."""
    if node.state != "silent" or node.is_dismissed or node.is_imported or (
            node.listing is None or not node.listing.order):
        return None
    successors = [successor_of(fleet, slot) for slot in node.listing.order]
    first = successors[0]
    group = fleet.group_of(node.hello.node_id)
    return first if first is not None and all(other is first for other in successors) and (
        fleet.group_of(first.hello.node_id) == group) else None


def _silent_words(fleet: Fleet, node: Node) -> str:
    heir = successor(fleet, node)
    return "Silent: current state unknown" if heir is None else (
        f"Silent: another node called {heir.hello.host} reports its GPUs now; if the machine was "
        "installed again, revoke this one")


def _of_reader(node: Node, mono: float) -> NodeHealthView | None:
    """Return what is wrong with its reader; None: it reads, or has not said yet."""
    beat, age_s = node.beat, reading_age_s(node, mono)
    if beat is None:
        return None
    word = OF_READER.get(beat.reader)
    if beat.reader == "ok" and age_s is not None and age_s > STALE_AFTER_S + BEAT_EVERY_S:
        word = "driver_hung"
    if word is None:
        return None
    detail = f": {beat.detail}" if beat.detail else ""
    if word == "driver_hung":
        since = "" if age_s is None else f" for {age(age_s)}"
        return NodeHealthView(word, f"The driver has not answered{since}; values are old{detail}")
    texts = {"no_driver": "No driver is loaded", "starting": "The agent has just begun to read"}
    return NodeHealthView(word, f"{texts.get(word, 'GPUs cannot be read')}{detail}")


def reading_age_s(node: Node, mono: float) -> float | None:
    """Return how many seconds ago the last reading was; None: nothing was read yet."""
    if node.beat is None or node.beat.reading_age_s is None:
        return None
    return node.beat.reading_age_s + max(0.0, mono - node.beat_mono)
