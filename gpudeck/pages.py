"""What a site's own pages are made of: `SitePage` and live components for Dash (docs/extend.md).

The components say what to show and give back what was clicked; `assets/dash_components.js` draws
them from the hub's socket. No live number passes through a Dash callback."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dash.development.base_component import Component

ENTRY_POINTS = "gpudeck.pages"


class BrowserComponent(Component):
    """Drawn by the class of the same name in `assets/dash_components.js`."""

    PROPS = "id"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._namespace, cls._type, cls._prop_names = (
            "gpudeck_components", cls.__name__, cls.PROPS.split())
        cls._children_props, cls._base_nodes = [], ["children"]
        cls._valid_wildcard_attributes = cls.available_wildcard_properties = ["data-", "aria-"]

    def __init__(self, **props: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            **{name: value for name, value in props.items() if value is not None})


class LiveHeatmap(BrowserComponent):
    """The fleet's GPUs in the colours of a metric, as on the Fleet page. `group`: node, model,
    owner, state or none. `clicked` is `{"uuid", "host", "index", "n"}` of the last click; `n`
    counts them, so that the same GPU may be clicked twice."""

    PROPS = "id metric filter group height clicked"

    def __init__(self, id: Any = None, metric: str = "util_pct", filter: str = "",
                 group: str = "node", height: int = 320) -> None:
        super().__init__(id=id, metric=metric, filter=filter, group=group, height=height)


class LiveTimeline(BrowserComponent):
    """One metric of some GPUs, by UUID, each second: the last `minutes`, at most 60."""

    PROPS = "id gpus metric minutes"

    def __init__(self, id: Any = None, gpus: Any = (), metric: str = "util_pct",
                 minutes: int = 5) -> None:
        super().__init__(id=id, gpus=list(gpus), metric=metric, minutes=minutes)


class LiveTable(BrowserComponent):
    """The GPUs that a filter picks, by the metric, the highest first; at most `limit`. `clicked`
    as of LiveHeatmap."""

    PROPS = "id metric filter limit clicked"

    def __init__(self, id: Any = None, metric: str = "util_pct", filter: str = "",
                 limit: int = 20) -> None:
        super().__init__(id=id, metric=metric, filter=filter, limit=limit)


class Stat(BrowserComponent):
    """One of the fleet's totals: free, gpus, tasks, throttled, lost, util, power or memory."""

    PROPS = "id total label"

    def __init__(self, id: Any = None, total: str = "free", label: str = "") -> None:
        super().__init__(id=id, total=total, label=label)


@dataclass(frozen=True, slots=True)
class PageCallback:
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    answer: Callable[..., Any]


@dataclass(slots=True)
class SitePage:
    """A site's own page at `/site/KEY`, for everyone with this role: viewer, user, operator
    or admin. What `layout` and `callback` decorate is given the hub first, as
    `gpudeck.notebook.connect()` would give it: DataFrames of what the one who looks may see."""

    key: str
    name: str
    role: str = "viewer"
    about: str = ""
    make: Callable[..., Any] | None = None
    callbacks: list[PageCallback] = field(default_factory=list)

    def layout(self, make: Callable[..., Any]) -> Callable[..., Any]:
        self.make = make
        return make

    def callback(self, *arguments: Any, **options: Any
                 ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Takes what `dash.callback` takes."""
        def keep(answer: Callable[..., Any]) -> Callable[..., Any]:
            self.callbacks.append(PageCallback(arguments, options, answer))
            return answer
        return keep
