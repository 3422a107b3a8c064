"""Teams: owners who share a bill. Each owner is in one team at most. Pure."""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta, Struct

Name = Annotated[str, Meta(min_length=1, max_length=64)]
UnixName = Annotated[str, Meta(min_length=1, max_length=128)]
MOST = 500
MATCHED_MOST = 100_000


class Team(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A team: `users` by name, then Unix `groups`, then `patterns` such as `lab3-*`: the first of
    these three ways in which an owner belongs to any team decides, within it the first team in the
    order of the table."""

    name: Name
    users: Annotated[tuple[UnixName, ...], Meta(max_length=5_000)] = ()
    groups: Annotated[tuple[UnixName, ...], Meta(max_length=100)] = ()
    patterns: Annotated[tuple[UnixName, ...], Meta(max_length=100)] = ()
    price_gpu_hour: Annotated[float, Meta(ge=0, le=1e9)] | None = None


def teams_flaw(teams: Collection[Team]) -> str | None:
    """Return why these cannot be the teams; None: they can."""
    if len(teams) > MOST:
        return f"at most {MOST} teams are allowed"
    if (name := _twice(team.name for team in teams)) is not None:
        return f"there are two teams named {name!r}"
    if (user := _twice(user for team in teams for user in team.users)) is not None:
        return f"{user!r} is named in two teams; nobody is counted twice"
    if (group := _twice(group for team in teams for group in team.groups)) is not None:
        return f"the group {group!r} is named in two teams; nobody is counted twice"
    return None


def _twice(names: Iterable[str]) -> str | None:
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            return name
        earlier.add(name)
    return None


def with_team(teams: Iterable[Team], team: Team) -> tuple[Team, ...]:
    """Return the teams with one more, or with it at the place of the team of its name."""
    return tuple(({other.name: other for other in teams} | {team.name: team}).values())


class TeamTable:
    """Teams, indexed for thousands of owners each second."""

    def __init__(self, teams: Iterable[Team]) -> None:
        self.teams = tuple(teams)
        self._by_user = {user: team.name for team in reversed(self.teams) for user in team.users}
        self._places = {group: place for place, team in reversed([*enumerate(self.teams)])
                        for group in team.groups}
        self._patterns = [(pattern, team.name) for team in self.teams for pattern in team.patterns]
        self._matched: dict[str, str | None] = {}

    def of(self, users: Iterable[str], groups: Mapping[str, Collection[str]]) -> dict[str, str]:
        """Return the team names of the owners who are in one. `groups`: in which Unix groups an
        owner was seen."""
        return {user: team for user in users
                if (team := self._by_user.get(user) or self._by_group(groups.get(user, ()))
                    or self._by_pattern(user)) is not None} if self.teams else {}

    def _by_group(self, groups: Iterable[str]) -> str | None:
        place = min((self._places[group] for group in groups if group in self._places),
                    default=None)
        return None if place is None else self.teams[place].name

    def _by_pattern(self, user: str) -> str | None:
        if user not in self._matched:
            if len(self._matched) >= MATCHED_MOST:  # nodes choose the names
                self._matched.clear()
            self._matched[user] = next((name for pattern, name in self._patterns
                                        if fnmatchcase(user, pattern)), None)
        return self._matched[user]
