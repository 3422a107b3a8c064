"""Lists of things: a row for each, with buttons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from .words import moment, when

Item = dict[str, Any]
Cell = Callable[[Any], Any]  # of an item: a text, an element, or a list of them


@dataclass(frozen=True, slots=True)
class ViewContext:
    """The person who views the page, as `GET me` says it, at which moment and in which zone."""

    person: Item
    now: float
    zone: str

    @property
    def is_admin(self) -> bool:
        return bool(self.person["role"] == "admin")

    def ago(self, at: float | None, never: str = "never") -> Component:
        return ago(at, self.now, self.zone, never)


@dataclass(frozen=True, slots=True)
class ItemList:
    """A table; on a phone each row is a card. `key`: the item's identity; `empty`: what is
    said without items; `actions`: buttons of a row; `is_steady`: new rows go to the end while the
    pointer or the focus is in it, so that no row moves under a hand; `meanings`: of heads that do
    not say all."""

    label: str
    columns: Sequence[tuple[str, Cell]]
    key: Callable[[Any], str]
    empty: str
    actions: Callable[[Any], list[Component]] = lambda item: []
    is_steady: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)

    def draw(self, items: Sequence[Any]) -> Component:
        if not items:
            return make("div.rows-place", [make("p.none", self.empty)])
        # On a phone each row is a card, and a table laid out so must say what it still is.
        heads = [*(make("th", head, role="columnheader", scope="col",
                        title=self.meanings.get(head)) for head, _ in self.columns),
                 make("th", make("span.unseen", "Actions"), role="columnheader", scope="col")]
        return make("div.rows-place", [make("table.rows", [
            make("thead", [make("tr", heads, role="row")], role="rowgroup"),
            make("tbody", [self._row(item) for item in items], role="rowgroup",
                 data_steady="" if self.is_steady else None)],
            role="table", aria_label=self.label)])

    def _row(self, item: Any) -> Component:
        cells = [make("td", cell(item), role="cell", data_head=head) for head, cell in self.columns]
        return make("tr", [*cells, make("td.row-actions", self.actions(item), role="cell")],
                    role="row", data_key=self.key(item))


def ago(at: float | None, now: float, zone: str, never: str = "never") -> Component:
    """Return how long ago or ahead it is; the moment itself is its tooltip."""
    return make("span", when(at, now, never), title=None if at is None else moment(at, zone))


def name_cell(name: str, pill: str | None = None, tone: str = "") -> list[Component]:
    """Return a name in bold, and a word about it."""
    return [make("strong.name", name), *([] if pill is None else [make(f"span.pill{tone}", pill)])]


def stacked(*parts: Component | None) -> Component:
    """Return parts one below the other, beside the column's name on a phone."""
    return make("div.stacked", [part for part in parts if part is not None])


def group_words(groups: Sequence[str]) -> str:
    return "all nodes" if "*" in groups else ", ".join(groups)
