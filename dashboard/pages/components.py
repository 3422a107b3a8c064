"""Live components of single pages; those that sites may use too are in gpudeck/components.py."""

import json
from collections.abc import Iterable
from typing import Literal, NamedTuple

from gpudeck.components import LiveComponent
from gpudeck.markup import make, region


class TaskColumn(NamedTuple):
    """A column of tasks. `sort`: by which the hub orders them; `first`: the order at first."""

    key: str
    head: str
    sort: str
    first: Literal["asc", "desc"]
    meaning: str


class TaskTable(LiveComponent):
    """Tasks, or groups of them, with their actions; the page's view says which and in what order.
    assets/tasks/tasks_table.mjs draws them."""

    def __init__(self, id: str, columns: Iterable[TaskColumn]) -> None:
        super().__init__(make("div.tasks-place", data_columns=json.dumps(
            [column._asdict() for column in columns])), "page", id=id)


class RankMap(LiveComponent):
    """The ranks of a job over time: a row for each, in the colours of a metric."""

    def __init__(self, id: str) -> None:
        super().__init__(make("div.job-map", [
            make("ul#job-names.job-names"),
            make("div.job-canvas", make("canvas#job-canvas", role="img", tabIndex="0",
                                        aria_label="Ranks over time"))]), "page", id=id)


class PoolWeek(LiveComponent):
    """The week's leases and reservations; dragging reserves."""

    def __init__(self, id: str) -> None:
        super().__init__(region("div.calendar", "Leases and reservations of the week"), "page",
                         id=id)
