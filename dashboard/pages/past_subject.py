"""Subjects of History: the fleet, a group, a model, a node, single GPUs, a user or a team, as an
address or a person names them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlencode

from gpudeck.client.hub import Client
from gpudeck.errors import CommandError
from gpudeck.measures.metrics import COLUMNS, Metric

from .figures import Item
from .gpu_figure import PastGpu
from .past_span import DAY_S, Kind
from .reading import View
from .words import plural

MOST_GPUS, MOST_CANDIDATES, MOST_METRICS = 8, 64, 6
STANDARD = ("util_pct", "mem_used_bytes", "power_w", "temp_c")
# The highest is in the band of the mean; of counters and masks there is no mean.
NOT_DRAWN = frozenset(("util_max_pct", "power_max_w", "energy_j", "throttle_bits"))
DRAWN: dict[str, Metric] = {
    metric.key: metric for metric in COLUMNS if metric.key not in NOT_DRAWN}
SUMMED: tuple[Kind, ...] = ("group", "model", "user", "team")
OWNERS_S = 30 * DAY_S  # users and teams of this time are offered
FLEET = "fleet"
SHORT_UUID = 16
LONGEST_LABEL = 256
NO_SUBJECT: dict[str, Any] = {"node": "", "gpu": (), "hide": (), "owner": "", "team": "",
                              "group": "", "model": "", "what": ""}


class PastView(View):
    """Address of History. `what`: the subject as somebody typed it. `hide`: GPUs that are not
    drawn. `whole`: the span to return to from a closer one. `choices`: the subjects to choose from
    are listed."""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset(("choices",))
    node: str = ""
    gpu: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    owner: str = ""
    team: str = ""
    group: str = ""
    model: str = ""
    what: str = ""
    metric: tuple[str, ...] = ()
    last: str = ""
    start: str = ""
    end: str = ""
    whole: str = ""
    drag: Literal["zoom", "pan"] = "zoom"
    band: Literal["shown", "hidden"] = "shown"
    choices: Literal["", "listed"] = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """`name`: of the group, the model, the user or the team. `node`: if the GPUs are those of one
    node. `model`: of a single GPU."""

    kind: Kind
    name: str = ""
    node: Item | None = None
    candidates: Sequence[PastGpu] = ()
    gpus: Sequence[PastGpu] = ()
    model: str = ""

    @property
    def has_lines(self) -> bool:
        """Tell a line per GPU, of metrics to choose, from sums."""
        return self.kind == "gpus"

    @property
    def typed(self) -> str:
        """The subject as somebody types it."""
        if self.node is not None:
            return str(self.node["host"])
        if self.kind == "gpus":
            return self.gpus[0].label if len(self.gpus) == 1 else ""
        return FLEET if self.kind == "fleet" else f"{self.kind}:{self.name}"

    @property
    def title(self) -> str:
        if self.node is not None:
            return str(self.node["host"])
        if self.kind == "gpus":
            count = len(self.candidates)
            return ("History" if count == 0 else self.gpus[0].label if count == 1
                    else plural(count, "GPU"))
        return "Fleet" if self.kind == "fleet" else self.name

    @property
    def subtitle(self) -> str:
        if self.kind == "gpus":
            count = len(self.candidates)
            return f"max. {MOST_GPUS} of {count} GPUs" if count > MOST_GPUS else self.model
        return {"group": "a group of nodes", "model": "all GPUs of this model",
                "user": "usage on all nodes",
                "team": "usage of the team's owners, by current membership"}.get(
                    self.kind, "all GPUs")

    @property
    def live_address(self) -> str | None:
        """Path of the page with its present numbers; None: there is none."""
        if self.node is not None:
            return f"/node/{quote(self.node['id'], safe='')}"
        if self.kind == "gpus":
            if not self.gpus:
                return None
            if len(self.gpus) == 1:
                return f"/gpu/{quote(self.gpus[0].uuid, safe='')}"
            return f"/compare?{urlencode([('gpu', gpu.uuid) for gpu in self.gpus])}"
        if self.kind == "model":
            return "/?" + urlencode({"filter": f'model:"{self.name}"'})
        if self.kind == "user":
            return "/tasks?" + urlencode({"filter": f"user:{self.name}"})
        return None if self.kind == "team" else "/"


def metrics_of_view(view: PastView) -> list[Metric]:
    """Return the metrics to draw, without unknown ones. Pure."""
    keys = [key for key in dict.fromkeys(view.metric) if key in DRAWN][:MOST_METRICS]
    return [DRAWN[key] for key in keys or STANDARD]


def subject_of(client: Client, view: PastView) -> Subject | None:
    """Return the subject of a view. None: there is no such node."""
    if view.owner:
        return Subject("user", view.owner.removeprefix("user:"))
    for kind in ("team", "group", "model"):
        if name := getattr(view, kind):
            return Subject(kind, name)
    metrics = ",".join(metric.key for metric in metrics_of_view(view))
    if view.node:
        node = next(iter(client.hub.items("nodes", id=view.node)), None)
        return None if node is None else subject_of_node(
            node, client.gpus("", metrics, node["id"]), view.gpu)
    if view.gpu:
        uuids = [*dict.fromkeys(view.gpu)][:MOST_CANDIDATES]
        query = urlencode([("uuid", uuid) for uuid in uuids]
                          + [("limit", str(MOST_CANDIDATES)), ("metrics", metrics)])
        return subject_of_gpus(uuids, client.hub.items(f"gpus?{query}"), view.hide)
    return Subject("fleet")


def subject_of_node(node: Item, gpus: Sequence[Item], uuids: Sequence[str]) -> Subject:
    """Return a node's GPUs, of these `uuids` if it has any of them. Pure."""
    candidates = [_past_gpu(gpu, f"GPU {gpu['place']}") for gpu in gpus]
    drawn_gpus = [gpu for gpu in candidates if gpu.uuid in uuids] or candidates
    return Subject("gpus", node=node, candidates=candidates, gpus=drawn_gpus[:MOST_GPUS],
                   model=str(gpus[0]["name"]) if len(gpus) == 1 else "")


def subject_of_gpus(uuids: Sequence[str], gpus: Sequence[Item], hide: Sequence[str]) -> Subject:
    """Return these GPUs in their order. A GPU that no node reports any more still has a past.
    Pure."""
    present = {gpu["uuid"]: gpu for gpu in gpus}
    candidates = [_past_gpu(present[uuid], f"{present[uuid]['host']}:{present[uuid]['place']}")
                  if uuid in present else PastGpu(uuid[:128], _shortened(uuid)) for uuid in uuids]
    drawn_gpus = [gpu for gpu in candidates if gpu.uuid not in hide] or candidates
    name = str(present[uuids[0]]["name"]) if len(uuids) == 1 and uuids[0] in present else ""
    return Subject("gpus", candidates=candidates, gpus=drawn_gpus[:MOST_GPUS], model=name)


def _past_gpu(gpu: Item, label: str) -> PastGpu:
    return PastGpu(gpu["uuid"], label[:LONGEST_LABEL], gpu["node"], dict(gpu["missing"]))


def _shortened(uuid: str) -> str:
    return f"{uuid[:SHORT_UUID]}…" if len(uuid) > SHORT_UUID else uuid


def resolve(client: Client, view: PastView) -> None:
    """Put the typed subject into its own fields of the view; `what` stays if there is none such."""
    words = view.what.strip()
    fields = _typed_fields(client, words) if words else None
    if fields is not None:
        for name, value in (NO_SUBJECT | fields).items():
            setattr(view, name, value)


def _typed_fields(client: Client, words: str) -> dict[str, Any] | None:
    if words == FLEET:
        return {}
    kind, _, name = words.partition(":")
    if kind in SUMMED and name:
        return {"owner" if kind == "user" else kind: f"user:{name}" if kind == "user" else name}
    if (node := _node_named(client, words)) is not None:
        return {"node": node["id"]}
    match = re.fullmatch(r"(.*):([0-9/]+)", words)
    if match is None or (node := _node_named(client, match[1])) is None:
        return None
    return next(({"gpu": (gpu["uuid"],)} for gpu in client.gpus("", "", node["id"])
                 if gpu["place"] == match[2]), None)


def _node_named(client: Client, host: str) -> Item | None:
    return next((node for node in client.hub.items("nodes", id=host) if node["host"] == host), None)


def choices_of(client: Client, now: float) -> list[str]:
    """Return subjects to choose from, as somebody types them; none where the hub refuses."""
    since, end = str(int(now) - OWNERS_S), str(int(now))
    try:
        load = client.hub.get("load", start=str(int(now) - 60), end=end, step="60")
        users, teams = ([row["of"] for row in client.hub.items("reports", by=by, start=since)]
                        for by in ("user", "team"))
        hosts = [node["host"] for node in client.nodes()]
    except CommandError:
        return []
    return [FLEET, *(f"group:{name}" for name in load["groups"]),
            *(f"model:{name}" for name in load["models"]), *hosts,
            *(f"user:{name}" for name in users if name is not None),
            *(f"team:{name}" for name in teams if name)]
