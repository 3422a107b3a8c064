"""Transfer of viewed hubs' data into the live picture."""

from collections.abc import Callable

from ..fleet.effects import HubEvent, SiteAway, SiteHeard, SitesViewed
from ..runtime.runner import Loop
from ..settings import HubSettings
from .alerts_poll import SiteAlert, SiteAlertsPoll
from .core import SitePicture
from .link import SiteAddress, SiteLink

STEP_EVERY_S = 0.25
LAYOUT_EVERY_S = 4.0
SILENT_S = 20.0


def _addresses(settings: HubSettings) -> list[SiteAddress]:
    files = dict(settings.view_token_file)
    return [SiteAddress(name, url, files[name], settings.view_ca_file)
            for name, url in settings.view]


class SitesService:
    """Holds a link per site, and what was last submitted of each."""

    def __init__(self, settings: HubSettings, submit: Callable[[HubEvent], None]) -> None:
        addresses = _addresses(settings)
        self._links = [SiteLink(address) for address in addresses]
        self._alerts = {address.name: SiteAlertsPoll(address) for address in addresses}
        self._submit = submit
        self._last_submitted = {address.name: SitePicture() for address in addresses}
        self._layout_mono: dict[str, float] = {}
        if addresses:
            submit(SitesViewed(settings.cluster, settings.view))

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (Loop("sites", self.step, STEP_EVERY_S),) if self._links else ()

    def start(self) -> None:
        for link in self._links:
            link.start()
        for poll in self._alerts.values():
            poll.start()

    def close(self) -> None:
        for link in self._links:
            link.close()
        for poll in self._alerts.values():
            poll.close()

    def alerts_of(self, name: str) -> tuple[SiteAlert, ...] | None:
        """Return the site's firing alerts; None: they are not known."""
        return self._alerts[name].alerts

    def step(self, _now: float, mono: float) -> None:
        for link in self._links:
            if link.trouble:
                self._submit(SiteAway(link.address.name, link.trouble))
            else:
                self._submit_changes(link.address.name, link.picture, mono)

    def _submit_changes(self, name: str, picture: SitePicture, mono: float) -> None:
        previous = self._last_submitted[name]
        if picture is previous or picture.layout is None:
            if previous.numbers is not None and mono - previous.numbers.received_mono > SILENT_S:
                self._submit(SiteAway(name, "nothing is heard of it"))
            return
        is_new = picture.layout is not previous.layout
        if is_new:
            if mono - self._layout_mono.get(name, -LAYOUT_EVERY_S) < LAYOUT_EVERY_S:
                return  # submitted later; no real hub sends layouts in such quick succession
            self._layout_mono[name] = mono
        self._last_submitted[name] = picture
        self._submit(SiteHeard(
            name, picture.layout if is_new else None,
            picture.owners if is_new or picture.owners is not previous.owners else None,
            picture.numbers if picture.numbers is not previous.numbers else None))
