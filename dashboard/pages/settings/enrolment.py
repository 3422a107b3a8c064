"""Enrolment of nodes in Settings: the command for new nodes, what becomes of it, and approval of
many by their fingerprints."""

from typing import Any
from urllib.parse import quote

import msgspec
from dash.development.base_component import Component

from gpudeck.client.hub import Client
from gpudeck.markup import make

from ...nodes.views import ApprovalViewList
from ..forms import area, check, form_button, order, text
from ..item_lists import Item
from ..reading import Parts
from ..words import age, plural

GROUP = {"required": "", "maxlength": "64", "pattern": r"[A-Za-z0-9][A-Za-z0-9._\-]*"}
PROGRESS = "connect-progress"  # a place in the dialog that shows the command
LOOK_EVERY_S = 1.0
APPROVE = {
    "title": "Approve nodes by fingerprint", "verb": "Approve",
    "lead": "Each agent shows its fingerprint at startup. Paste those that you expect, one on a "
            "line; only these are approved.",
    "fields": [area("fingerprints", "Fingerprints", as_="lines", required="", rows="8")],
    "keeps": "approvals",
} | order("POST", "nodes", "approvals", body={"fingerprints": "$fingerprints"})
WHY_LEFT = {"revoked": " is revoked.", "unknown": " has not connected."}


def connect_button() -> Component:
    """Return the button for the command, which is shown once. The view's `enrolment` is its id
    while it is shown."""
    return form_button("#connect-node.button.first", "Connect a node", {
        "title": "Connect a node", "verb": "Create command",
        "lead": "The node generates its own key, which identifies it from then on.",
        "fields": [
            text("group", "Group", "default", **GROUP),
            text("host", "Only for these hosts", "", "A host name, or a list such as gpu[01-40]. "
                 "Empty: any node that uses the command.", maxlength="4096", placeholder="any"),
            text("uses", "Number of nodes", "", type="number", min="1", step="1",
                 placeholder="1, or as many as the list names"),
            text("networks", "Only from these networks", "", "Addresses or networks such as "
                 "10.0.0.0/8, comma-separated.", empty="", maxlength="4096", placeholder="any"),
            check("approve", "Require approval by fingerprint")],
        "shows": {"title": "Connect a node", "lead": [
            "Run this command on the node, or on each of several, as the user the agent should run "
            "as:"], "copy": "command", "what": "the command", "place": PROGRESS},
        "sets": {"enrolment": "id"},
    } | order("POST", "enrolments", body={name: f"${name}" for name in (
        "group", "host", "uses", "networks", "approve")}))


def progress_parts(client: Client, ident: str, now: float) -> Parts:
    """Return what has become of a command. It is asked for each second: no list is read."""
    place = client.hub.get_known(f"enrolments/{quote(ident, safe='')}")
    node = None if place is None or place["uses"] > 1 or place["used_by"] is None else (
        client.hub.get_known(f"nodes/{place['used_by']}"))
    return {PROGRESS: progress(place, node, now), "@every": LOOK_EVERY_S}


def progress(place: Item | None, node: Item | None, now: float) -> list[Component]:
    """Return how long the command is valid, who has used it, and what to do now. `node`: the one
    that used up a command for a single node. Pure."""
    if place is None:
        return [_words("Withdrawn: the command no longer works.")]
    valid_s, uses, count = place["expires_at"] - now, place["uses"], place["used"]
    validity = (f"Valid for {plural(uses, 'node')}, for another {age(valid_s)}. It will not be "
                "shown again.")
    withdraw = form_button(".button", "Withdraw", order("DELETE", "enrolments", place["id"]))
    approve = [] if node is None or node["access"] != "waiting" else [form_button(
        ".button.first", "Approve", order("POST", "nodes", node["id"], "approve"))]
    words = (f"{count} of {uses} nodes are enrolled." if uses > 1 else
             "Waiting for the node …" if node is None else node_words(node))
    is_good = count == uses and (node is None or (
        node["access"] == "approved" and node["state"] == "live"))
    return [
        make("p", validity if valid_s > 0 else "Expired; create a new one."),
        _words(words, is_good),
        make("div.dialog-foot", [*approve, *([withdraw] if count < uses else [])])]


def _words(words: str, is_good: bool = False) -> Component:
    return make(f"p.waiting-words{'.good' if is_good else ''}", words, role="status")


def node_words(node: Item) -> str:
    """Return what a node that has used its command does now. Pure."""
    host, gpus = node["host"], node["gpus"]
    if node["access"] == "waiting":
        return (f"{host} is waiting for approval. Compare the fingerprint shown by its agent: "
                f"{node['fingerprint']}")
    if node["access"] == "revoked":
        return f"{host} was revoked."
    if node["state"] != "live":
        return f"{host} is enrolled; waiting for its data …"
    return (f"{host} is connected, with {plural(gpus, 'GPU')}." if gpus else
            f"{host} is connected; reading its GPUs …")


def approval_dialog(answer: str) -> list[Any]:
    """Return a dialog with what became of a list of fingerprints, as the hub answered it. Pure."""
    items = msgspec.json.decode(answer, type=ApprovalViewList).items
    approved = plural(sum(item.outcome == "approved" for item in items), "node")
    failures = [make("p", [make("code", item.fingerprint), WHY_LEFT[item.outcome]])
            for item in items if item.outcome in WHY_LEFT]
    return ["Not all were approved" if failures else "Approved by fingerprint",
            make("p", f"{approved} approved."), *failures]
