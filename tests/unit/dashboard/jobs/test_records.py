"""What is kept of jobs: their words, from first seen to ended; and nothing ends that is not said
to."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dashboard.fleet.fleet import Fleet
from dashboard.jobs.core.records import short_line
from dashboard.jobs.service import JobsService
from dashboard.jobs.store import SCHEMA, JobsStore
from dashboard.runtime.sqlite_state import SqliteConnection, SqliteStateStore
from gpudeck.wire import Task, Tasks, Use
from tests.unit.fleets import MONO, NOW, add_node, frame

DAY_S = 86_400.0


@dataclass
class Watched:
    store: JobsStore
    fleet: Fleet = field(default_factory=lambda: Fleet(1))
    seq: int = 0

    def __post_init__(self) -> None:
        self.node = add_node(self.fleet)
        self.service = self.began()

    def began(self) -> JobsService:
        audit: Any = None  # teams are not changed here
        return JobsService(self.fleet, self.store, audit, dict, 30 * DAY_S)

    def tell(self, *on: tuple[str, int, str], at: float = NOW) -> None:
        """(task, GPU, job)."""
        self.seq += 1
        tasks = tuple(Task(name, 1, 1, NOW - 60, "ann", f"python {name}.py", job_id=job,
                           launch="torchrun h:1/x") for name, _, job in on)
        uses = tuple(Use(name, gpu, 1e9, 5.0) for name, gpu, _ in on)
        self.fleet.frame(self.node, frame([{}, {}], self.seq, at, tasks=Tasks(True, tasks, uses)),
                         at, MONO + at - NOW)
        self.service.step(at, MONO + at - NOW)


@pytest.fixture(name="db")
def _db(tmp_path: Path) -> Iterator[SqliteConnection]:
    with closing(SqliteStateStore(tmp_path / "state.db")) as store:
        store.migrate((SCHEMA,))
        yield store.connection


@pytest.fixture(name="watched")
def _watched(db: SqliteConnection) -> Watched:
    return Watched(JobsStore(db))


def test_a_job_is_kept_with_all_gpus_that_it_ever_had(watched: Watched) -> None:
    watched.tell(("a", 0, "j"), ("b", 1, "j"))
    watched.tell(("a", 0, "j"), at=NOW + 10)
    watched.tell(at=NOW + 20)
    [one] = watched.store.of_ids(["j"])
    assert (one.user, one.command, one.tasks, len(one.gpus)) == ("ann", "python a.py", 2, 2)
    assert (one.first_seen, one.ended_at, one.started_at) == (NOW, NOW + 20, NOW - 60)
    assert [each.id for each in watched.store.of_launches(["torchrun h:1/x"])] == ["j"]
    assert watched.service.running == {}


def test_what_a_node_that_is_away_does_not_say_has_not_ended(watched: Watched) -> None:
    watched.tell(("a", 0, "j"))
    watched.node.connected = False
    watched.node.tasks, watched.node.uses = {}, ()
    watched.service.step(NOW + 100, MONO + 100)
    assert watched.store.of_ids(["j"])[0].ended_at is None
    watched.node.connected = True
    watched.service.step(NOW + 105, MONO + 105)
    assert watched.store.of_ids(["j"])[0].ended_at == NOW + 105


def test_what_ended_while_the_hub_was_away_is_closed_when_its_node_speaks(watched: Watched) -> None:
    watched.tell(("a", 0, "j"), ("b", 1, "k"))
    watched.service = watched.began()  # another hub
    watched.node.are_tasks_known = False
    watched.service.step(NOW + 50, MONO + 50)
    assert watched.store.of_ids(["k"])[0].ended_at is None
    watched.tell(("a", 0, "j"), at=NOW + 60)
    assert watched.store.of_ids(["k"])[0].ended_at == NOW + 60
    assert watched.store.of_ids(["j"])[0].first_seen == NOW


def test_a_store_that_fails_is_tried_again(watched: Watched, db: SqliteConnection) -> None:
    db.execute("alter table jobs rename to away")
    watched.tell(("a", 0, "j"))
    db.execute("alter table away rename to jobs")
    watched.service.step(NOW + 5, MONO + 5)
    assert [one.id for one in watched.store.of_ids(["j"])] == ["j"]


def test_what_is_old_is_forgotten(watched: Watched) -> None:
    watched.tell(("a", 0, "old"))
    watched.tell(("b", 0, "new"), at=NOW + 10)
    watched.service.step(NOW + 40 * DAY_S, MONO + 40 * DAY_S)
    assert watched.store.of_ids(["old"]) == []
    assert watched.store.of_ids(["new"]) != []  # it runs


@pytest.mark.parametrize(("line", "short"), [
    ("/opt/py/bin/python3 -u /home/a/train.py --lr 3", "train.py --lr 3"),
    ("python -c print(1)", "python -c print(1)"), ("python -X dev -m pkg.run -a", "pkg.run -a"),
    ("/usr/bin/nvcc a.cu", "nvcc a.cu"), ("bash", "bash"), ("python", "python"), ("", "")])
def test_a_line_is_shown_from_its_script_on(line: str, short: str) -> None:
    assert short_line(line) == short
