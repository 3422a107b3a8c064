"""Teams: nobody is in two, and what decides is said."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.jobs.core.teams import Team, TeamTable, teams_flaw

NAMES = st.sampled_from(("ann", "bob", "lab3-cy", "dee"))


def test_names_decide_before_groups_and_groups_before_patterns() -> None:
    teams = (Team("p", patterns=("*",)), Team("g", groups=("vision",)), Team("u", users=("ann",)))
    groups = {"ann": {"vision"}, "bob": {"vision"}, "cy": set[str]()}
    assert TeamTable(teams).of(["ann", "bob", "cy"], groups) == {"ann": "u", "bob": "g", "cy": "p"}


def test_the_first_of_the_table_is_taken() -> None:
    teams = [Team("a", patterns=("lab*",)), Team("b", patterns=("lab3-*",))]
    assert TeamTable(teams).of(["lab3-x"], {}) == {"lab3-x": "a"}
    assert TeamTable(teams[::-1]).of(["lab3-x"], {}) == {"lab3-x": "b"}
    assert TeamTable(teams).of(["else"], {}) == {}


@pytest.mark.parametrize(("teams", "word"), [
    ((Team("a", users=("ann",)), Team("b", users=("ann",))), "ann"),
    ((Team("a", groups=("g",)), Team("b", groups=("g",))), "group"),
    ((Team("a"), Team("a")), "named"),
    (tuple(Team(str(n)) for n in range(501)), "500")])
def test_what_would_count_somebody_twice_is_refused(teams: tuple[Team, ...], word: str) -> None:
    assert word in (teams_flaw(teams) or "")


@given(st.lists(st.tuples(st.lists(NAMES, max_size=2, unique=True),
                          st.lists(st.sampled_from(("x", "y")), max_size=1),
                          st.lists(st.sampled_from(("*", "lab*")), max_size=1)), max_size=4),
       st.integers(0, 2**32))
def test_everybody_is_in_one_team_at_most(rows: list[tuple[list[str], list[str], list[str]]],
                                          seed: int) -> None:
    teams = tuple(Team(str(at), tuple(users), tuple(groups), tuple(patterns))
                  for at, (users, groups, patterns) in enumerate(rows))
    lots = random.Random(seed)
    groups = {name: {lots.choice(("x", "y", "z"))} for name in ("ann", "bob", "lab3-cy", "dee")}
    team_of = TeamTable(teams).of(groups, groups)
    assert set(team_of.values()) <= {team.name for team in teams}
    for user, name in team_of.items():  # a name is kept whatever groups and patterns say
        by_name = [team.name for team in teams if user in team.users]
        assert not by_name or name in by_name
