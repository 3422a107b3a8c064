"""Nodes in Settings: which machines belong to the fleet, and who waits for approval."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..element_tree import trees
from ..forms import form_button, order, row_button, sure, text
from ..hold_buttons import resume_button, stop_button
from ..item_lists import Item, ItemList, ViewContext
from ..node_words import agent_words, reader_trouble, refused_words
from ..parts import literal
from ..words import NONE, clock, plural
from .enrolment import APPROVE, GROUP

MOST_ROWS = 300
MOST_GROUPS = 8  # in the hint of a form
PILLS = {"live": ".ok", "suspect": ".stale", "silent": ".stale", "waiting": ".stale",
         "revoked": ".lost"}
MEANINGS = {
    "imported": "A recording: history only", "waiting": "Waiting for approval by an admin",
    "revoked": "Its key is no longer accepted", "suspect": "No data for 15 s",
    "silent": "No data for 60 s"}
RANKS = {"waiting": 0, "approved": 1, "revoked": 2}
NO_NODES = "No nodes yet. “Connect a node” creates a command to run on one."
NOTHING_FOUND = "No node has this in its name, group, state, id or fingerprint."

Holds = Mapping[str, bool]  # by node: whether this hub stopped actions there, and so may resume


def nodes_lists(nodes: Sequence[Item], enrolments: Sequence[Item], hold: Item, find: str,
                context: ViewContext) -> list[Any]:
    """Return the nodes that match `find`, and the commands that no node has used up. `hold`: where
    actions are stopped, as `GET hold` says it."""
    own = sorted((node for node in nodes if node["link"] is None), key=_rank)
    matching = [node for node in own if find.strip().lower() in _searched(node)]
    holds = {one["node"]: bool(one["wanted"]) for one in hold["nodes"]
             if one["wanted"] or one["holds"]}
    may_hold = hold["fleet"] is None
    former = {node["successor"]: node for node in own if node["successor"] is not None}
    groups = ", ".join([*dict.fromkeys(node["group"] for node in own)][:MOST_GROUPS])
    rows = ItemList(
        "Nodes", (
            ("Node", lambda node: [make("strong.name", node["host"]), make(
                "code.fingerprint", node["fingerprint"],
                title="The fingerprint of the node's key")]),
            ("State", lambda node: _state(node, node["id"] in holds, former.get(node["id"]),
                                          context)),
            ("Group", lambda node: node["group"]),
            ("GPUs", lambda node: str(node["gpus"]) if node["access"] == "approved" else NONE),
            ("Agent", _agent), ("Last seen", lambda node: context.ago(node["last_heard_at"]))),
        lambda node: str(node["id"]), NOTHING_FOUND if own else NO_NODES,
        lambda node: _actions(node, holds, may_hold, groups))
    return [*([_find_line(own, matching)] if own else []),
            rows.draw(matching[:MOST_ROWS]), *_pending(enrolments, context)]


def _rank(node: Item) -> tuple[int, list[tuple[int, str]]]:
    """Order nodes by access, then by name, gpu2 before gpu10."""
    parts = re.findall(r"\d+|\D+", node["host"].lower())
    return RANKS[node["access"]], [(int(part), "") if part.isdecimal() and part.isascii()
                                   else (-1, part) for part in parts]


def _state_of(node: Item) -> str:
    if node["imported"]:
        return "imported"
    return str(node["state"] if node["access"] == "approved" else node["access"])


def _searched(node: Item) -> str:
    return (f"{node['host']} {node['group']} {node['id']} {node['fingerprint']} "
            f"{_state_of(node)}").lower()


def _find_line(nodes: Sequence[Item], matching: Sequence[Item]) -> Component:
    waiting = sum(node["access"] == "waiting" for node in nodes)
    words = plural(len(nodes), "node") if len(matching) == len(nodes) else (
        f"{len(matching)} of {plural(len(nodes), 'node')}")
    more = f", the first {MOST_ROWS} shown" if len(matching) > MOST_ROWS else ""
    asks = f"; {waiting} waiting for approval" if waiting else ""
    return make("div.find-line", [
        make("input#find-node.find", type="search", placeholder="Find a node", data_view="find",
             aria_label="Find a node", autoComplete="off", spellCheck="false"),
        make("p.count", f"{words}{more}{asks}", role="status"),
        make("button#approve-nodes.button", "Approve a list …", data_form=APPROVE,
             hidden=waiting < 2)])


def _state(node: Item, is_held: bool, former: Item | None, context: ViewContext
           ) -> list[Component]:
    """Return a node's state. `former`: a silent node that reported the same GPUs."""
    state = _state_of(node)
    notes = [refused_words(node, context.now, context.zone),
             None if node["successor"] is None else node["health"]["why"],
             None if former is None else (
                 f"Reports the GPUs of {former['host']}, silent since "
                 f"{clock(former['last_heard_at'], context.now, context.zone)}: revoke that node?")]
    return [make(f"span.pill{PILLS.get(state, '')}", state, title=MEANINGS.get(state)),
            *(make("span.agent-note.trouble", note) for note in notes if note is not None),
            *([make("span.pill.stale", "actions stopped", title="No actions on this node")]
              if is_held else [])]


def _agent(node: Item) -> list[Component]:
    """Return what is wrong first: that is why somebody reads this."""
    if node["access"] != "approved" or node["imported"] or node["agent_version"] == "":
        return [make("span", NONE)]
    trouble, driver = reader_trouble(node), node["driver_version"]
    return [*([] if trouble is None else [make("span.agent-note.trouble", trouble)]),
            make("span.agent-cost", agent_words(node)),
            *([] if driver is None else [make("span.agent-note", f"driver {driver}")])]


def _actions(node: Item, holds: Holds, may_hold: bool, groups: str) -> list[Component]:
    host = node["host"]
    approve = [form_button(".button.small.first", "Approve", {
        "title": f"Approve {host}?", "verb": "Approve", "lead": [
            "The agent shows its fingerprint at startup. Compare it with this one:",
            *trees(make("p.command", make("code", node["fingerprint"])))],
        } | order("POST", "nodes", node["id"], "approve"), f"Approve {host}")]
    return [*(approve if node["access"] == "waiting" else []),
            *(_hold(node, holds) if node["access"] == "approved" and may_hold else []),
            row_button("Group", _group(node, groups), f"Change the group of {host}"),
            row_button("Revoke", sure(
                f"Revoke {host}?", "Revoke", "Its connection is closed within a second and its key "
                "is no longer accepted. Tasks on it keep running. To bring it back, delete "
                "agent.key in its data folder and connect it again.",
                order("POST", "nodes", node["id"], "revoke")), f"Revoke {host}")]


def _hold(node: Item, holds: Holds) -> list[Component]:
    """Return the button that stops or resumes actions. What a file on the node holds is resumed
    only there."""
    if node["id"] not in holds:
        return [stop_button(node["id"], node["host"])]
    return [resume_button(node["id"], node["host"])] if holds[node["id"]] else []


def _group(node: Item, groups: str) -> dict[str, Any]:
    change = order("PATCH", "nodes", node["id"], body={"group": "$group"})
    return {
        "title": f"Group of {node['host']}", "verb": "Save",
        "lead": "People and tokens only see nodes of their groups. Those without access to the new "
                "group lose this node immediately.",
        "fields": [text("group", "Group", node["group"], f"In use: {groups}.", **GROUP)],
        "done": "{host} is now in the group {group}.",
        "undo": change | {"body": {"group": literal(node["group"])}}} | change


def _pending(enrolments: Sequence[Item], context: ViewContext) -> list[Component]:
    waiting = [one for one in enrolments
               if one["used_by"] is None and one["expires_at"] > context.now]
    if not waiting:
        return []
    return [make("div.unused", [make("h3", "Pending enrolments"), ItemList(
        "Pending enrolments", (
            ("For", lambda one: (one["host"] or "any node") + (
                f", from {one['networks']}" if one["networks"] else "")),
            ("Nodes", lambda one: f"{one['used']} of {one['uses']}"),
            ("Group", lambda one: one["group"]),
            ("Created", lambda one: [context.ago(one["created_at"]), f" by {one['created_by']}"]),
            ("Expires", lambda one: context.ago(one["expires_at"]))),
        lambda one: str(one["id"]), "", lambda one: [row_button("Withdraw", order(
            "DELETE", "enrolments", one["id"], done="Withdrawn: the command no longer works."),
            f"Withdraw the enrolment for {one['host'] or 'any node'}")]).draw(waiting)])]
