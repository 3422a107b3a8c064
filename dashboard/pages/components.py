"""Live components of single pages; those that sites may use too are in gpudeck/components.py."""

from gpudeck.components import LiveComponent
from gpudeck.markup import make, region


class TaskTable(LiveComponent):
    """Tasks with their actions. `group`: the grouping at first: job, owner or none."""

    def __init__(self, id: str, group: str = "job") -> None:
        super().__init__(make("div.tasks-place", data_group=group), "page", id=id)


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
