"""Parts of the web: the Flask server, its sockets, threads for long questions."""

from flask import Flask

from ..composition import Capability, Core
from ..settings import HubSettings
from .bounded_socket import AGENT_BYTES, BoundedSocketIO, ConnectionLimits
from .http_server import ServerCounters
from .query_pool import QueryPool

VIEWER_BYTES = 4_096
# An agent is known to live by its own Beat; these are only for the library at its end.
AGENT_PING_S, AGENT_STALL_S = 25.0, 60.0


def build(core: Core) -> Capability:
    server = core.add(Flask("gpudeck", static_folder=None))
    # Whatever the environment says: a debugger in a browser is a shell for anyone who finds it.
    server.config.update(DEBUG=False, TESTING=False)
    counters = core.add(ServerCounters())
    core.add(QueryPool())
    sockets = core.add(BoundedSocketIO())
    sockets.init_app(server, allowances=_allowances(core.settings), tally=counters)
    return Capability(tasks=(sockets.engine.readiness.run,))


def _allowances(settings: HubSettings) -> dict[str, ConnectionLimits]:
    stall_s = float(settings.viewer_stall_s)
    viewer = ConnectionLimits(VIEWER_BYTES, 20, 100, stall_s / 3, stall_s)
    # The agents' endpoint limits messages of agents; this bounds what never gets that far.
    agent = ConnectionLimits(AGENT_BYTES, 2_000, 20_000, AGENT_PING_S, AGENT_STALL_S)
    return {"agent": agent, "person": viewer, "program": viewer}
