"""Nodes by the names that people call them."""

from typing import TYPE_CHECKING

from gpudeck.action_words import printable
from gpudeck.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from gpudeck.client import Client


def node_id_of(client: "Client", wanted: str) -> str:
    """By its id, or by its host name where exactly one node has it; else those that may be meant
    are listed."""
    nodes = client.nodes()
    if any(node["id"] == wanted for node in nodes):
        return wanted
    named = [node for node in nodes if node["host"] == wanted]
    if len(named) == 1:
        return str(named[0]["id"])
    if not named:
        near = _near(wanted, [str(node["host"]) for node in nodes])
        raise CommandError(f"there is no node {printable(wanted)!r} that you may see{near}",
                           ExitCode.USAGE)
    listed = [f"  {printable(str(node['id']))}  {node['state']}" for node in named]
    raise CommandError("\n".join([
        f"{len(named)} nodes have the name {printable(wanted)!r}; give the id of one of these:",
        *listed]), ExitCode.USAGE)


def _near(wanted: str, hosts: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(wanted, hosts, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(printable, near))}?" if near else ""
