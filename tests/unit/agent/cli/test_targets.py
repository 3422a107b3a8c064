"""Tasks that a terminal's words select: never one more than was said."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.action_settings import read_act
from agent.cli.targets import matching, no_such_task
from gpudeck.errors import CommandError, ExitCode

UUIDS = st.sets(st.sampled_from(["a", "b", "c"]), max_size=3)
TASKS = st.lists(st.tuples(st.sampled_from(["n1", "n2"]), UUIDS,
                           st.sampled_from(["alice", "bob", None])), max_size=6)


def task_items(rows: list[tuple[str, set[str], str | None]]) -> list[dict[str, Any]]:
    return [{"id": f"t{at}", "node": node, "gpus": [{"uuid": uuid} for uuid in sorted(uuids)],
             "user": user, "pid": at, "command": f"run {at}"}
            for at, (node, uuids, user) in enumerate(rows)]


@given(rows=TASKS, gpus=st.sets(st.tuples(st.sampled_from(["n1", "n2"]),
                                          st.sampled_from(["a", "b", "c"]))),
       user=st.sampled_from(["alice", "bob", "carol", None]))
def test_a_filter_never_means_more_than_it_says(
    rows: list[tuple[str, set[str], str | None]], gpus: set[tuple[str, str]], user: str | None
) -> None:
    tasks = task_items(rows)
    try:
        ids = set(matching(tasks, gpus, user))
    except CommandError:
        return
    assert ids
    users: dict[tuple[str, str], str | None] = {}
    for task in tasks:
        if task["id"] not in ids:
            continue
        uses = {(task["node"], use["uuid"]) for use in task["gpus"]}
        assert uses
        assert uses <= gpus
        assert user in (None, task["user"])
        assert {users.setdefault(use, task["user"]) for use in uses} == {task["user"]}


def test_a_filter_finds_what_it_says() -> None:
    tasks = task_items([("n1", {"a"}, "alice"), ("n1", {"a", "b"}, "alice"), ("n1", {"c"}, None)])
    assert matching(tasks, {("n1", "a"), ("n1", "c")}, None) == ["t0", "t2"]
    with pytest.raises(CommandError, match="no task matches"):
        matching(tasks, {("n2", "a")}, None)
    with pytest.raises(CommandError, match="belongs to bob"):
        matching(tasks, {("n1", "a")}, "bob")


def test_what_may_be_meant_is_listed_and_cut() -> None:
    evil = {"id": "evil", "node": "n", "gpus": [], "user": "alice", "pid": 1,
            "command": "\x1b[2J"}
    tasks = [*task_items([("n1", {"a"}, "alice")] * 30), evil]
    text = str(no_such_task("alice", tasks))
    assert "and 11 more" in text
    assert all(line.isprintable() for line in str(no_such_task("1", tasks)).split("\n"))
    assert "t7" in str(no_such_task("7", tasks))
    assert "t17" not in str(no_such_task("7", tasks))


WRONG = [
    ["--yes", "t1"], ["--yes"], [], ["--plan", "p", "t1"], ["--plan", "p", "--filter", "x"],
    ["--plan", "p", "--plan-out", "q"], ["--plan", "p", "--grace", "5"], ["t1", "--filter", "x"],
    ["t1", "--user", "alice"], ["t1", "--wait", "5"], ["t1", "--grace", "0"],
    ["t1", "--grace", "601"], ["t1", "--grace", "nan"], ["t1", "--signal", "USR1", "--wait", "-1"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_words_that_do_not_fit_are_refused(words: list[str]) -> None:
    with pytest.raises(CommandError) as error:
        read_act("end", words, {})
    assert error.value.code == ExitCode.USAGE


def test_what_hits_comes_from_the_words_alone() -> None:
    chance = random.Random(random.random())
    env = {f"GPUDECK_{name}": "1" for name in (
        "YES", "PLAN", "TARGETS", "FILTER", "USER", "REASON", "GRACE", "SIGNAL", "WAIT", "TEXT",
        "PLAN_OUT")}
    target = f"t{chance.random()}"
    act = read_act("end", [target, target], env)
    assert act.targets == (target,)
    assert (act.yes, act.plan, act.plan_out, act.filter, act.user, act.reason) == (
        False, None, None, None, None, None)
    assert act.params == {"grace_s": 30.0, "checkpoint_signal": None, "checkpoint_wait_s": 0.0}


def test_a_notice_needs_its_text() -> None:
    with pytest.raises(CommandError, match="--text"):
        read_act("notify", ["t1"], {})
    assert read_act("notify", ["t1", "--text", "hello"], {}).params == {"text": "hello"}
    assert read_act("pause", ["t1"], {}).params == {}
