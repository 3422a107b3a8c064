"""Building blocks of a site's own pages: `SitePage`, and the live components (docs/extend.md)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpudeck.components import AlertLane as AlertLane
from gpudeck.components import AttentionStrip as AttentionStrip
from gpudeck.components import LiveHeatmap as LiveHeatmap
from gpudeck.components import LiveTable as LiveTable
from gpudeck.components import LiveTimeline as LiveTimeline
from gpudeck.components import Stat as Stat
from gpudeck.components import TimeBar as TimeBar

ENTRY_POINTS = "gpudeck.pages"


@dataclass(frozen=True, slots=True)
class PageCallback:
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    answer: Callable[..., Any]


@dataclass(slots=True)
class SitePage:
    """A site's own page at `/site/KEY`, for everyone with this role: viewer, user, operator or
    admin.

    Functions that `layout` and `callback` decorate get the hub as their first argument, as
    `gpudeck.notebook.connect()` would give it: DataFrames of what the page's viewer may see.
    """

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
        """Register a callback; takes what `dash.callback` takes."""
        def register(answer: Callable[..., Any]) -> Callable[..., Any]:
            self.callbacks.append(PageCallback(arguments, options, answer))
            return answer
        return register
