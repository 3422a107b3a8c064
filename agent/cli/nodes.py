"""Nodes by the names that people call them."""

from typing import TYPE_CHECKING

from gpudeck.errors import CommandError, ExitCode
from gpudeck.words.actions import printable

if TYPE_CHECKING:
    from gpudeck.client.hub import Client, Item


def node_id_of(client: "Client", name: str) -> str:
    """Return the id of a node, given its id, or its host name where exactly one node has it;
    otherwise the error lists those that may be meant."""
    nodes = client.nodes()
    if any(node["id"] == name for node in nodes):
        return name
    matches = _current([node for node in nodes if node["host"] == name])
    if len(matches) == 1:
        return str(matches[0]["id"])
    if not matches:
        near = _near(name, [str(node["host"]) for node in nodes])
        raise CommandError(f"there is no node {printable(name)!r} that you may see{near}",
                           ExitCode.USAGE)
    listed = [f"  {printable(str(node['id']))}  {node['state']}" for node in matches]
    raise CommandError("\n".join([
        f"{len(matches)} nodes have the name {printable(name)!r}; give the id of one of these:",
        *listed]), ExitCode.USAGE)


def _current(nodes: "list[Item]") -> "list[Item]":
    """Return those of one name that it means, as the hub reads it: a revoked node has given it up,
    and a machine comes before its imported past and before another site's."""
    enrolled = [node for node in nodes if node.get("access") != "revoked"] or nodes
    machines = [node for node in enrolled if not node.get("imported") and node.get("site") is None]
    return machines or enrolled


def _near(name: str, hosts: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, hosts, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(printable, near))}?" if near else ""
