"""Other sites, as pages and programs are shown them, and links to their own pages."""

from typing import Any
from urllib.parse import quote

from ..access.policy import Scope
from .fleet import Fleet, GpuStatus, Node, Site
from .metric_table import Codes
from .sites import group_at, own_id
from .visibility import VisibleFleet


def sites_seen(fleet: Fleet, visible: VisibleFleet) -> list[Site]:
    scope = Scope(visible.sight.groups)
    return [site for site in fleet.sites.values() if scope.sees(group_at(site.name))]


def sites_now(fleet: Fleet, visible: VisibleFleet, unit: Codes) -> dict[str, Any]:
    """Return the sites that are viewed; nothing where there are none."""
    sites = [{"name": site.name, "url": site.url, "state": site.state, "since": site.since,
              "why": site.why, "nodes": len(site.nodes), "left_out": site.left_out,
              "gpus": 0 if site.slots is None else int(
                  (unit[site.slots] != GpuStatus.RETIRED).sum())}
             for site in sites_seen(fleet, visible)]
    return {"sites": sites} if sites else {}


def gpu_link(fleet: Fleet, slot: int) -> str | None:
    site = fleet.node_of(slot).site
    uuid = own_id(fleet.uuids[slot])
    return None if site is None else f"{site.url}/?gpu={quote(uuid, safe='')}"


def node_link(node: Node) -> str | None:
    return None if node.site is None else (
        f"{node.site.url}/node/{quote(own_id(node.hello.node_id), safe='')}")
