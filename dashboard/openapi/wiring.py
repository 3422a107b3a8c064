"""The REST interface, with the routes of all capabilities before it, and the health check."""

from flask import Flask

from ..composition import Capability, Core
from ..fleet.node_names import NodeNames
from ..heartbeat.service import Heartbeat
from ..web.health import add_health
from .api import add_api


def build(core: Core) -> Capability:
    server = core.get(Flask)
    apis = [api for capability in core.built for api in capability.apis()]
    add_api(server, apis, core.get(NodeNames).id_of)
    add_health(server, core.get(Heartbeat).unready)
    return Capability()
