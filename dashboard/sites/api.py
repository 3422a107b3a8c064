"""REST routes of other sites. None of them changes anything."""

from dataclasses import dataclass

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, see
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import check_names
from .queries import SiteQueries
from .views import SiteAlertList, SiteList


@dataclass(frozen=True, slots=True)
class SitesApi:
    queries: SiteQueries
    visible_fleets: VisibleFleetCache

    def sites(self) -> SiteList:
        check_names(())
        return self.queries.sites(self.visible_fleets.seen_by(caller()))

    def alerts(self) -> SiteAlertList:
        check_names(())
        return self.queries.alerts(self.visible_fleets.seen_by(caller()))


ROUTES = (
    Route("GET sites", SitesApi.sites, "list_sites", see(Role.VIEWER),
          "Other hubs that this one views; none unless it was started with `--view`."),
    Route("GET sites/alerts", SitesApi.alerts, "list_site_alerts", see(Role.VIEWER),
          "Firing alerts of those sites, newest first, as their own hubs tell of them. Silence or "
          "approve them there, at `link`."),
)
