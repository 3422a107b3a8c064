"""Other sites and their alerts, as the API shows them. Pure."""

from typing import Literal

from msgspec import Struct


class SiteView(Struct):
    """`since`: of this state; `why`: it is away. `left_out`: GPUs over what one site may fill."""

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
    """`link`: where its own hub shows it."""

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
    """`unknown`: sites of which is not known what fires."""

    items: list[SiteAlertView]
    unknown: list[str]
