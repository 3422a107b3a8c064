"""Records of jobs: their words, from first seen to ended; and nothing ends that is not said
to."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dashboard.fleet.effects import StreamRecord
from dashboard.fleet.fleet import Fleet
from dashboard.jobs.core.backfilled import MOST_ENDED
from dashboard.jobs.core.record_room import BYTES_MOST, RecordRoom
from dashboard.jobs.core.records import JobRecord, short_line
from dashboard.jobs.service import MOST_EARLY, MOST_NAMED, JobsService
from dashboard.jobs.store import SCHEMA, JobsStore
from dashboard.runtime.sqlite_state import SqliteConnection, SqliteStateStore
from gpudeck.contract.wire import Frame, Hello, Task, Tasks, Use
from tests.unit.fleets import MONO, NOW, add_node, frame, hello

DAY_S = 86_400.0


@dataclass
class JobScene:
    store: JobsStore
    fleet: Fleet = field(default_factory=lambda: Fleet(1))
    seq: int = 0
    had: set[str] = field(default_factory=set)  # tasks that the node had when it left

    def __post_init__(self) -> None:
        self.node = add_node(self.fleet)
        self.service = self.new_service()

    def new_service(self) -> JobsService:
        audit: Any = None  # teams are not changed here
        return JobsService(self.fleet, self.store, audit, dict, dict, 30 * DAY_S)

    def report(self, *on: tuple[str, int, str], at: float = NOW) -> None:
        """(task, GPU, job)."""
        self.send(*on, at=at)
        self.service.step(at, MONO + at - NOW)

    def send(self, *on: tuple[str, int, str], at: float = NOW) -> None:
        message = self.frame(*on, at=at)
        self.fleet.frame(self.node, message, at, MONO + at - NOW)
        self.service.receive(self.record(message, at))

    def frame(self, *on: tuple[str, int, str], at: float, is_whole: bool = True) -> Frame:
        self.seq += 1
        tasks = tuple(Task(name, 1, 1, NOW - 60, "ann", f"python {name}.py", job_id=job,
                           launch="torchrun h:1/x") for name, _, job in on)
        uses = tuple(Use(name, gpu, 1e9, 5.0) for name, gpu, _ in on)
        return frame([{}, {}], self.seq, at, tasks=Tasks(is_whole, tasks if is_whole else tuple(
            task for task in tasks if task.id not in self.had), uses))

    def record(self, message: Frame | Hello, at: float, is_backfill: bool = False) -> StreamRecord:
        return StreamRecord("n1", "s1", self.seq, at, b"", is_backfill, message, int(at))

    def reconnect(self, *on: tuple[str, int, str], at: float) -> None:
        """Reconnect the node, perhaps to another hub, with the tasks that it runs by now."""
        self.had = {*self.node.tasks}
        self.fleet.hello(message := hello(), at, MONO + at - NOW)
        self.service.receive(self.record(message, at))
        self.report(*on, at=at)

    def backfill(self, *on: tuple[str, int, str], at: float) -> None:
        """Send the tasks that ran while the node was away."""
        self.service.receive(self.record(self.frame(*on, at=at, is_whole=False), at, True))
        self.had |= {name for name, _, _ in on}

    def stored(self, job: str, at: float) -> JobRecord:
        self.service.step(at, MONO + at - NOW)
        [one] = self.store.of_ids([job])
        return one


@pytest.fixture(name="db")
def _db(tmp_path: Path) -> Iterator[SqliteConnection]:
    with closing(SqliteStateStore(tmp_path / "state.db")) as store:
        store.migrate((SCHEMA,))
        yield store.connection


@pytest.fixture(name="scene")
def _scene(db: SqliteConnection) -> JobScene:
    return JobScene(JobsStore(db))


def test_a_job_is_kept_with_all_gpus_that_it_ever_had(scene: JobScene) -> None:
    scene.report(("a", 0, "j"), ("b", 1, "j"))
    scene.report(("a", 0, "j"), at=NOW + 10)
    scene.report(at=NOW + 20)
    [one] = scene.store.of_ids(["j"])
    assert (one.user, one.command, one.tasks, len(one.gpus)) == ("ann", "python a.py", 2, 2)
    assert (one.first_seen, one.ended_at, one.started_at) == (NOW, NOW + 20, NOW - 60)
    assert [record.id for record in scene.store.of_launches(["torchrun h:1/x"])] == ["j"]
    assert scene.service.running() == []


def test_what_a_node_that_is_away_does_not_say_has_not_ended(scene: JobScene) -> None:
    scene.report(("a", 0, "j"))
    scene.node.connected = False
    scene.node.tasks, scene.node.uses = {}, ()
    scene.service.step(NOW + 100, MONO + 100)
    assert scene.store.of_ids(["j"])[0].ended_at is None
    scene.node.connected = True
    scene.service.step(NOW + 105, MONO + 105)
    assert scene.store.of_ids(["j"])[0].ended_at == NOW + 105


def test_what_ended_while_the_hub_was_away_is_closed_when_its_node_speaks(scene: JobScene) -> None:
    scene.report(("a", 0, "j"), ("b", 1, "k"))
    scene.service = scene.new_service()  # another hub
    scene.node.are_tasks_known = False
    scene.service.step(NOW + 50, MONO + 50)
    assert scene.store.of_ids(["k"])[0].ended_at is None
    scene.report(("a", 0, "j"), at=NOW + 60)
    assert scene.store.of_ids(["k"])[0].ended_at == NOW + 60
    assert scene.store.of_ids(["j"])[0].first_seen == NOW


def test_a_store_that_fails_is_tried_again(scene: JobScene, db: SqliteConnection) -> None:
    db.execute("alter table jobs rename to away")
    scene.report(("a", 0, "j"))
    db.execute("alter table away rename to jobs")
    scene.service.step(NOW + 5, MONO + 5)
    assert [one.id for one in scene.store.of_ids(["j"])] == ["j"]


def test_a_job_is_known_from_the_frame_that_brings_it_and_a_short_one_for_good(
        scene: JobScene) -> None:
    """A short job begins and ends between two looks."""
    scene.report(("a", 0, "j"))
    scene.send(("a", 0, "j"), ("b", 1, "short"), at=NOW + 1)
    assert [one.command for one in scene.service.of_ids(["short"])] == ["python b.py"]
    assert {one.id for one in scene.service.of_launch("torchrun h:1/x")} == {"j", "short"}
    scene.send(("a", 0, "j"), ("c", 1, "next"), at=NOW + 3)
    [short] = scene.service.of_ids(["short"])
    assert (short.first_seen, short.ended_at) == (NOW + 1, NOW + 3)
    assert "short" in [one.id for one in scene.service.ended(NOW, 10)]
    assert scene.stored("short", NOW + 5) == short


def test_a_node_that_makes_up_jobs_writes_few_of_them_between_two_looks(scene: JobScene) -> None:
    """A stolen key wrote a job for each of its frames, 6 MB in a minute."""
    made_up = [f"m{number}" for number in range(5 * MOST_EARLY)]
    for name in made_up:
        scene.send((name, 0, name))
    scene.report(("last", 0, "last"))
    assert len(scene.store.of_ids(made_up)) <= MOST_EARLY
    assert scene.store.of_ids(["last"])
    scene.service = scene.new_service()
    scene.reconnect(at=NOW + 3_600)
    past = [f"p{number}" for number in range(2 * MOST_ENDED)]
    for at, name in enumerate(past):
        scene.backfill((name, 0, name), at=NOW + at)
    scene.service.step(NOW + 3_605, MONO + 3_605)
    assert MOST_ENDED <= len(scene.store.of_ids(past)) <= MOST_ENDED + 1
    more = [f"q{number}" for number in range(3 * MOST_ENDED)]
    for at, name in enumerate(more):
        scene.backfill((name, 0, name), at=NOW + 2 * MOST_ENDED + at)
        if at % MOST_ENDED == 0:
            scene.service.step(NOW + 3_700, MONO + 3_700)
    scene.service.step(NOW + 3_705, MONO + 3_705)
    assert len(scene.store.of_ids([*past, *more])) == MOST_NAMED
    scene.service.step(NOW + 7_300, MONO + 7_300)  # another hour
    scene.backfill(("again", 0, "again"), at=NOW + 5 * MOST_ENDED)
    assert scene.stored("again", NOW + 7_305)


def test_a_node_that_renames_its_jobs_at_each_look_takes_no_more_disk_than_it_may(
        scene: JobScene, db: SqliteConnection) -> None:
    """Tasks on GPUs are no new ones: 50 at a time were 36,000 records an hour."""
    hosts = [("a", *range(50)), ("b", *range(50, 100))]
    for look in range(200):
        name, *numbers = hosts[look % 2]
        scene.report(*((f"{name}{number}", number % 2, f"j{look}-{number}" + "x" * 100)
                       for number in numbers), at=NOW + 5 * look)
    [size] = db.execute("select sum(pgsize) from dbstat").fetchone()
    assert size < 1.3 * BYTES_MOST[0][1]
    assert len(scene.service.running()) == 50, "all that run are listed"
    scene.report(("a", 0, "later"), at=NOW + 4_700)
    assert scene.stored("later", NOW + 4_705), "an hour on there is room again"


def test_a_job_beyond_the_room_is_stored_once_there_is_some(
        scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.service, "_room", RecordRoom(((3_600.0, 600),)))
    scene.report(("a", 0, "stored"))
    scene.report(("a", 0, "stored"), ("b", 1, "waits"), ("c", 1, "short"), at=NOW + 5)
    assert {job.id for job in scene.service.running()} == {"stored", "waits", "short"}
    assert [job.id for job in scene.store.of_ids(["waits", "short"])] == []
    scene.report(("b", 1, "waits"), at=NOW + 10)
    assert scene.stored("stored", NOW + 10).ended_at == NOW + 10, "what is stored ends"
    assert scene.store.of_ids(["short"]) == []
    assert scene.stored("waits", NOW + 3_700).first_seen == NOW + 5


def test_a_job_of_a_time_without_the_hub_is_kept_as_if_it_had_been_seen(scene: JobScene) -> None:
    scene.report(("a", 0, "before"), ("b", 1, "all along"))
    scene.service = scene.new_service()  # another hub, an hour later
    scene.reconnect(("b", 1, "all along"), ("e", 0, "goes on"), at=NOW + 3_600)
    scene.backfill(("b", 1, "all along"), ("a", 0, "before"), at=NOW + 30)
    scene.backfill(("b", 1, "all along"), ("c", 0, "meanwhile"), at=NOW + 60)
    # As far as it has been brought, in whatever steps it comes.
    assert scene.stored("meanwhile", NOW + 3_605).ended_at == NOW + 60
    scene.backfill(("b", 1, "all along"), ("c", 0, "meanwhile"), ("d", 1, "meanwhile"), at=NOW + 90)
    scene.backfill(("b", 0, "all along"), ("e", 0, "goes on"), at=NOW + 120)
    one = scene.stored("meanwhile", NOW + 3_610)
    assert (one.user, one.command, one.first_seen, one.ended_at, one.tasks, one.gpus) == (
        "ann", "python c.py", NOW + 60, NOW + 120, 2, ("GPU-n1-0", "GPU-n1-1"))
    # Not when its node spoke again, but when it was gone.
    assert scene.stored("before", NOW + 3_615).ended_at == NOW + 60
    for job, since in (("all along", NOW), ("goes on", NOW + 120)):
        lives = scene.stored(job, NOW + 3_620)
        assert (lives.first_seen, lives.ended_at) == (since, None), job
        assert scene.service.of_ids([job]) == [lives]
    assert scene.stored("all along", NOW + 3_625).gpus == ("GPU-n1-0", "GPU-n1-1")


def test_what_a_node_brings_late_ends_no_job_that_was_seen_since(scene: JobScene) -> None:
    scene.reconnect(("a", 0, "j"), at=NOW + 3_600)
    scene.report(at=NOW + 3_700)
    scene.backfill(("a", 0, "j"), at=NOW + 60)
    one = scene.stored("j", NOW + 3_800)
    assert (one.first_seen, one.ended_at) == (NOW + 60, NOW + 3_700)


def test_jobs_of_the_past_wait_while_the_disk_takes_nothing(
        scene: JobScene, db: SqliteConnection) -> None:
    scene.reconnect(at=NOW + 3_600)
    scene.backfill(("a", 0, "j"), at=NOW + 60)
    scene.backfill(at=NOW + 90)
    db.execute("alter table jobs rename to away")
    scene.service.step(NOW + 3_605, MONO + 3_605)
    db.execute("alter table away rename to jobs")
    assert scene.stored("j", NOW + 3_610).ended_at == NOW + 90


def test_what_is_old_is_forgotten(scene: JobScene) -> None:
    scene.report(("a", 0, "old"))
    scene.report(("b", 0, "new"), at=NOW + 10)
    scene.service.step(NOW + 40 * DAY_S, MONO + 40 * DAY_S)
    assert scene.store.of_ids(["old"]) == []
    assert scene.store.of_ids(["new"]) != []  # it runs


@pytest.mark.parametrize(("line", "short"), [
    ("/opt/py/bin/python3 -u /home/a/train.py --lr 3", "train.py --lr 3"),
    ("python -c print(1)", "python -c print(1)"), ("python -X dev -m pkg.run -a", "pkg.run -a"),
    ("/usr/bin/nvcc a.cu", "nvcc a.cu"), ("bash", "bash"), ("python", "python"), ("", "")])
def test_a_line_is_shown_from_its_script_on(line: str, short: str) -> None:
    assert short_line(line) == short
