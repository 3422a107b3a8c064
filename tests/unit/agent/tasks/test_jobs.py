"""Jobs stand or fall together: trees of processes, drawn by hand."""

import random

import pytest

from agent.tasks.jobs import (
    ProcessSummary,
    ProcessTableRow,
    below,
    is_launcher,
    is_seat,
    members,
    one_tree,
    root_of,
)

ME, OTHER = 1_000, 1_001
PYTHON = ("python", "train.py")


class Tree:
    """pid -> (parent, session, uid, words); start times grow with the pid."""

    def __init__(self, **_: object) -> None:
        self.rows: dict[int, ProcessTableRow] = {}
        self.abouts: dict[int, ProcessSummary] = {}

    def add(self, pid: int, parent: int, session: int, words: tuple[str, ...] = PYTHON,
            uid: int = ME, start: int | None = None) -> "Tree":
        self.rows[pid] = ProcessTableRow(pid, parent, session, pid if start is None else start, "S")
        self.abouts[pid] = ProcessSummary(uid, words)
        return self

    def root(self, pid: int, own: frozenset[int] = frozenset()) -> int | None:
        row = root_of(pid, self.rows.get, self.abouts.get, own)
        return None if row is None else row.pid


def a_login() -> Tree:
    return Tree().add(1, 0, 1, ("/sbin/init",), 0).add(10, 1, 10, ("sshd: alice",)).add(
        20, 10, 20, ("-bash",))


@pytest.mark.parametrize("stop", [
    ("-bash",), ("/bin/zsh", "-i"), ("tmux: server",), ("jupyter-lab",), ("sudo", "python"),
    ("/usr/bin/python3", "-m", "jupyterlab"), ("python", "-m", "ipykernel_launcher", "-f", "x"),
    ("python3", "/home/a/bin/jupyter-notebook"), ("raylet",), ("bash", "train.sh"),
])
def test_climbing_stops_where_people_sit(stop: tuple[str, ...]) -> None:
    tree = a_login().add(30, 20, 20, stop).add(40, 30, 20).add(50, 40, 20)
    assert tree.root(50) == 40
    assert is_seat(stop)


def test_workers_and_ranks_are_of_the_one_that_started_them() -> None:
    tree = a_login().add(30, 20, 20, ("python", "/venv/bin/torchrun", "train.py"))
    for rank in (41, 42, 43, 44):
        tree.add(rank, 30, rank)  # torch gives each rank a session of its own
    tree.add(50, 41, 41).add(60, 50, 41)
    assert {tree.root(pid) for pid in (30, 41, 42, 60)} == {30}
    assert [row.pid for row in members(30, tree.rows)] == [30, 41, 42, 43, 44, 50, 60]
    assert is_launcher(("python", "-m", "torch.distributed.run", "x.py"))


def test_another_session_user_or_kernel_thread_ends_the_climb() -> None:
    tree = a_login().add(30, 20, 20).add(40, 30, 40)
    assert tree.root(40) == 40
    tree = a_login().add(30, 20, 20, uid=OTHER).add(40, 30, 20)
    assert tree.root(40) == 40
    assert Tree().add(2, 0, 0, (), 0).add(30, 2, 30, uid=0).root(30) == 30


def test_never_into_ours_and_never_to_a_parent_younger_than_its_child() -> None:
    tree = a_login().add(30, 20, 20).add(40, 30, 20)
    assert tree.root(40) == 30
    assert tree.root(40, frozenset((30,))) == 40
    tree.add(30, 20, 20, start=999)  # the number was given out anew
    assert tree.root(40) == 40


def test_a_circle_ends() -> None:
    tree = Tree().add(30, 40, 30, start=5).add(40, 30, 30, start=5)
    assert tree.root(30) in (30, 40)
    assert {row.pid for row in below([30], tree.rows)} == {30, 40}
    assert tree.root(999) is None


def test_one_tree_is_proven_by_who_is_whose_parent() -> None:
    tree = a_login().add(30, 20, 20).add(40, 30, 20).add(50, 30, 50).add(60, 50, 50)
    job = [(tree.rows[pid], ME) for pid in (60, 40, 30, 50)]
    random.shuffle(job)
    assert next(row.pid for row in one_tree(job)) == 30
    assert {row.pid for row in one_tree(job)} == {30, 40, 50, 60}
    assert one_tree(job[:0]) == ()
    assert one_tree([member for member in job if member[0].pid != 50]) == (), "60 is nobody's then"
    assert one_tree([*job, (tree.rows[20], OTHER)]) == (), "two users"
    tree.add(50, 30, 50, start=29)
    assert one_tree([(tree.rows[pid], ME) for pid in (30, 50)]) == (), "older than its parent"
