"""Keys of usage reports, and what history's routes need of those who know more than history."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from .reads.frames import usage_by
from .reads.protocol import BYS, By

if TYPE_CHECKING:
    import pandas as pd

# What history does not know itself: it follows from what it knows.
Line = Callable[[str | None, str | None], str | None]
FromAnother = Literal["team", "model"]
KNOWN_BY: dict[FromAnother, By] = {"team": "user", "model": "gpu"}
REPORT_BYS = (*BYS, *get_args(FromAnother))
_SOURCES: dict[str, By] = {**{str(name): name for name in BYS},
                           **{str(name): source for name, source in KNOWN_BY.items()}}
# Of what is known to be in none of these; what is not known has no name.
NONE_WORDS = {"job": "no job", "launch": "not part of a launch", "slurm_job": "no Slurm job",
              "container": "no container", "pod": "no pod", "namespace": "no namespace",
              "unit": "no systemd unit", "team": "no team"}


class UsageNames(Protocol):
    def teams_of(self, users: Collection[str]) -> Mapping[str, str]:
        """Return the team of those of these owners who are in one; each is in one alone."""

    def team_prices(self) -> Mapping[str, float]:
        """Return the price of a GPU-hour, of teams that have one."""

    def called(self, by: str, keys: Collection[str], line: Line) -> Mapping[str, str]:
        """Return words for jobs and launches, as far as they are known. `line`: returns what may be
        read of an owner's command line. In a native thread."""


def source_of(by: str) -> By:
    """Return the key that history is asked for."""
    return _SOURCES[by]


def regrouped(usage: "pd.DataFrame", by: str, of: Mapping[str, str]) -> "pd.DataFrame":
    """`of`: what each key of the source belongs to. An owner without a team is in none, and who is
    not known may be in any; a GPU that has gone has a model that nobody knows any more."""
    nothing = "" if by == "team" else None
    frame = usage.rename(columns={source_of(by): by})
    frame[by] = [of.get(key, nothing) if isinstance(key, str) else None
                 for key in frame[by].tolist()]
    frame[by] = frame[by].astype("object")
    return usage_by(frame, by)
