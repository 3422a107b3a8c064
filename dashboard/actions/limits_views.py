"""MPS and limits of Gpus as nodes say they are. Pure."""

import msgspec
from msgspec.structs import replace

from gpudeck.limits import (
    LimitsNow,
    ManagedComputeMode,
    MpsClient,
    MpsDaemon,
    MpsFinding,
    MpsServer,
    TimedLimit,
)

from ..fleet.fleet import Fleet, Node
from ..fleet.visibility import CommandLineVisibility, VisibleFleet


class NodeMpsView(msgspec.Struct):
    """`trouble`: why nothing of MPS can be set there. `findings`: of its doctor."""

    node: str
    host: str
    taken_at: float
    trouble: str
    daemons: list[MpsDaemon]
    findings: list[MpsFinding]


class MpsList(msgspec.Struct):
    items: list[NodeMpsView]


class NodeLimitsView(msgspec.Struct):
    node: str
    host: str
    taken_at: float
    trouble: str
    leases: list[TimedLimit]
    modes: list[ManagedComputeMode]


class LimitsList(msgspec.Struct):
    items: list[NodeLimitsView]


def mps_list(fleet: Fleet, lens: VisibleFleet, node_id: str | None) -> MpsList:
    return MpsList([_mps(node, limits, lens.reads) for node, limits in _told(fleet, lens, node_id)])


def limits_list(fleet: Fleet, lens: VisibleFleet, node_id: str | None) -> LimitsList:
    return LimitsList([
        NodeLimitsView(node.hello.node_id, node.hello.host, limits.taken_at, limits.limits_trouble,
                       list(limits.leases), list(limits.modes))
        for node, limits in _told(fleet, lens, node_id)])


def _told(fleet: Fleet, lens: VisibleFleet, node_id: str | None) -> list[tuple[Node, LimitsNow]]:
    return [(node, node.limits) for node in lens.nodes(fleet) if node.limits is not None
            and node_id in (None, node.hello.node_id)]


def _mps(node: Node, limits: LimitsNow, reads: CommandLineVisibility) -> NodeMpsView:
    return NodeMpsView(node.hello.node_id, node.hello.host, limits.taken_at, limits.mps_trouble,
                       [replace(daemon, servers=tuple(_server(each, node, reads)
                                                      for each in daemon.servers))
                        for daemon in limits.daemons], list(limits.findings))


def _server(server: MpsServer, node: Node, reads: CommandLineVisibility) -> MpsServer:
    return replace(server, clients=tuple(_client(each, node, reads) for each in server.clients))


def _client(client: MpsClient, node: Node, reads: CommandLineVisibility) -> MpsClient:
    """Named as the task that it is; one that its node does not list as a client is none that could
    be taken out."""
    task = None if client.task_id is None else node.tasks.get(client.task_id)
    is_listed = task is not None and task.kind == "mps_client"
    user = client.user if task is None else task.user or client.user
    command = client.command if task is None else task.command or client.command
    return replace(client, user=user, command=reads.line(user, command),
                   task_id=client.task_id if is_listed else None)
