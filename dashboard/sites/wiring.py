"""Viewing of other hubs' fleets."""

from ..composition import Capability, Core
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleetCache
from .api import ROUTES as ROUTES
from .api import SitesApi
from .queries import SiteQueries
from .service import SitesService


def build(core: Core) -> Capability:
    sites = SitesService(core.settings, core.get(EffectHandlers).submit)
    return Capability(
        loops=sites.loops,
        apis=lambda: (SitesApi(SiteQueries(sites, core.get(Fleet)),
                               core.get(VisibleFleetCache)),),
        start=sites.start, stop=sites.close)
