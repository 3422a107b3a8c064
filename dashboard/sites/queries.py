"""Other sites and their firing alerts, by what an actor may see."""

from dataclasses import dataclass

import msgspec

from ..fleet.fleet import Fleet, Site
from ..fleet.site_views import sites_seen
from ..fleet.visibility import VisibleFleet
from .service import SitesService
from .views import SiteAlertList, SiteAlertView, SiteList, SiteView


@dataclass(frozen=True, slots=True)
class SiteQueries:
    service: SitesService
    fleet: Fleet

    def sites(self, visible: VisibleFleet) -> SiteList:
        return SiteList([self._view(site) for site in sites_seen(self.fleet, visible)])

    def _view(self, site: Site) -> SiteView:
        gpus = 0 if site.slots is None else int((~self.fleet.retired[site.slots]).sum())
        return SiteView(site.name, site.url, site.state, site.since, site.why, len(site.nodes),
                        gpus, site.left_out)

    def alerts(self, visible: VisibleFleet) -> SiteAlertList:
        views, unknown = [], []
        for site in sites_seen(self.fleet, visible):
            alerts = self.service.alerts_of(site.name)
            if alerts is None or site.state != "live":
                unknown.append(site.name)
                continue
            views += [SiteAlertView(site.name, link=f"{site.url}/alerts",
                                    **msgspec.structs.asdict(alert)) for alert in alerts]
        views.sort(key=lambda view: -view.since)
        return SiteAlertList(views, unknown)
