"""Brings what viewed hubs say into the live picture."""

from collections.abc import Callable

from ..fleet.effects import HubEvent, SiteAway, SiteHeard, SitesViewed
from ..runtime.runner import Loop
from ..settings import HubSettings
from .alerts_poll import SiteAlert, SiteAlertsPoll
from .core import SitePicture
from .link import SiteAddress, SiteLink

LOOK_EVERY_S = 0.25
LAYOUT_EVERY_S = 4.0
SILENT_S = 20.0


def _addresses(settings: HubSettings) -> list[SiteAddress]:
    files = dict(settings.view_token_file)
    return [SiteAddress(name, url, files[name], settings.view_ca_file)
            for name, url in settings.view]


class SitesService:
    """One link per site, and of each the newest that the picture has."""

    def __init__(self, settings: HubSettings, submit: Callable[[HubEvent], None]) -> None:
        addresses = _addresses(settings)
        self._links = [SiteLink(address) for address in addresses]
        self._alerts = {address.name: SiteAlertsPoll(address) for address in addresses}
        self._submit = submit
        self._shown = {address.name: SitePicture() for address in addresses}
        self._laid_out_mono: dict[str, float] = {}
        if addresses:
            submit(SitesViewed(settings.cluster, settings.view))

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (Loop("sites", self.step, LOOK_EVERY_S),) if self._links else ()

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
        """None: not known."""
        return self._alerts[name].found

    def step(self, _now: float, mono: float) -> None:
        for link in self._links:
            if link.trouble:
                self._submit(SiteAway(link.address.name, link.trouble))
            else:
                self._show(link.address.name, link.picture, mono)

    def _show(self, name: str, picture: SitePicture, mono: float) -> None:
        shown = self._shown[name]
        if picture is shown or picture.layout is None:
            if shown.numbers is not None and mono - shown.numbers.received_mono > SILENT_S:
                self._submit(SiteAway(name, "nothing is heard of it"))
            return
        is_new = picture.layout is not shown.layout
        if is_new:
            if mono - self._laid_out_mono.get(name, -LAYOUT_EVERY_S) < LAYOUT_EVERY_S:
                return  # its turn comes; a hub sends none so soon after another
            self._laid_out_mono[name] = mono
        self._shown[name] = picture
        self._submit(SiteHeard(
            name, picture.layout if is_new else None,
            picture.owners if is_new or picture.owners is not shown.owners else None,
            picture.numbers if picture.numbers is not shown.numbers else None))
