"""REST routes of other sites. None of them changes anything."""

from dataclasses import dataclass

import msgspec

from ..access.policy import Role
from ..access.requests import caller
from ..access.routes import Route, see
from ..fleet.fleet import Fleet, Site
from ..fleet.site_views import sites_seen
from ..fleet.visibility import VisibleFleetCache
from ..web.answers import check_names
from .service import SitesService
from .views import SiteAlertList, SiteAlertView, SiteList, SiteView


@dataclass(frozen=True, slots=True)
class SitesApi:
    service: SitesService
    fleet: Fleet
    visible_fleets: VisibleFleetCache

    def sites(self) -> SiteList:
        check_names(())
        return SiteList([SiteView(
            site.name, site.url, site.state, site.since, site.why, len(site.nodes),
            0 if site.slots is None else int((~self.fleet.retired[site.slots]).sum()),
            site.left_out) for site in self._visible_sites()])

    def alerts(self) -> SiteAlertList:
        check_names(())
        views, unknown = [], []
        for site in self._visible_sites():
            alerts = self.service.alerts_of(site.name)
            if alerts is None or site.state != "live":
                unknown.append(site.name)
                continue
            views += [SiteAlertView(site.name, link=f"{site.url}/alerts",
                                    **msgspec.structs.asdict(alert)) for alert in alerts]
        views.sort(key=lambda view: -view.since)
        return SiteAlertList(views, unknown)

    def _visible_sites(self) -> list[Site]:
        return sites_seen(self.fleet, self.visible_fleets.seen_by(caller()))


ROUTES = (
    Route("GET sites", SitesApi.sites, "list_sites", see(Role.VIEWER),
          "Other hubs that this one views; none unless it was started with `--view`."),
    Route("GET sites/alerts", SitesApi.alerts, "list_site_alerts", see(Role.VIEWER),
          "Firing alerts of those sites, newest first, as their own hubs tell of them. Silence or "
          "approve them there, at `link`."),
)
