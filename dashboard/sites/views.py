"""Other sites and their alerts, as the API shows them. Pure."""

from typing import Literal

from msgspec import Struct


class SiteView(Struct):
    """Another site. `since`: start of its state; `why`: reason why it is away. `left_out`: number
    of GPUs over the limit of one site."""

    name: str
    url: str
    state: Literal["connecting", "live", "away"]
    since: float
    why: str
    nodes: int
    gpus: int
    left_out: int


class SiteList(Struct):
    items: list[SiteView]


class SiteAlertView(Struct):
    """An alert of another site. `link`: address at which its own hub shows it."""

    site: str
    id: str
    rule: str
    title: str
    severity: Literal["info", "warn", "crit"]
    state: str
    since: float
    host: str
    place: str
    why: str
    link: str


class SiteAlertList(Struct):
    """Alerts of other sites. `unknown`: sites whose firing alerts are not known."""

    items: list[SiteAlertView]
    unknown: list[str]
