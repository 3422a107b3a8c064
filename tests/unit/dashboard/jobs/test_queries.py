"""The page of a job out of its record, the live fleet and history, as messages brought them."""

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dashboard.access.policy import Actor, Role, Scope
from dashboard.errors import NotFoundError
from dashboard.fleet.fleet import Fleet
from dashboard.fleet.host_views import ServingView
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.reads.embedded import EmbeddedHistory
from dashboard.jobs.core.teams import Team
from dashboard.jobs.queries import JobQueries
from dashboard.jobs.service import JobsService
from dashboard.jobs.store import SCHEMA, JobsStore
from dashboard.jobs.views import token_cost
from dashboard.runtime.sqlite_state import SqliteConnection
from gpudeck.contract.wire import GpuFacts, Inventory, Task, Tasks, Use
from gpudeck.measures.metrics import Absence
from tests.unit import fleets

MINUTE_S, MINUTES, GPUS, EVERY_S = 60, 12, 4, 5
LAUNCH = "torchrun 10.0.0.1:29500/x"
ADMIN = Actor("person", "ann", Role.ADMIN, Scope(("*",), ()))
VIEWER = Actor("person", "vic", Role.VIEWER, Scope(("*",), ()))


class LaunchScene:
    """Two nodes of a launch, with a rank that lags on the second for the last minutes."""

    minutes = MINUTES

    def __init__(self, folder: Path, db: SqliteConnection) -> None:
        self.fleet, self.history = Fleet(1), EmbeddedHistory(folder)
        self.history.open()
        audit: Any = None  # no team is changed by a person here
        store = JobsStore(db)
        store.put_teams([Team("vision", groups=("v",))])
        self.service = JobsService(self.fleet, store, audit, lambda: {"bob": {"v"}}, dict,
                                   1e6)
        self.queries = JobQueries(self.service, self.fleet, VisibleFleetCache(self.fleet),
                                  self.history)
        self.begin = int(time.time()) // MINUTE_S * MINUTE_S - (
            self.minutes * MINUTE_S)
        self.slow = random.randrange(GPUS)
        for node in ("n0", "n1"):
            gpus = Inventory(1, tuple(GpuFacts(
                f"GPU-{node}-{at}", at, "NVIDIA H100", mem_total_bytes=80e9,
                power_limit_max_w=700.0) for at in range(GPUS)))
            hello = fleets.hello(node)
            self.fleet.inventory(self.fleet.hello(hello, self.begin, 0.0), gpus)
            self.history.append([HistoryMessage(node, "s1", 0.0, hello),
                                 HistoryMessage(node, "s1", 0.0, gpus)], 1)

    def live(self) -> None:
        for t in range(self.begin, self.begin + self.minutes * MINUTE_S, EVERY_S):
            for at, node in enumerate(("n0", "n1")):
                frame = fleets.frame(
                    self._rows(at, t), t - self.begin + 1, t + 0.2, tasks=self._tasks(at),
                    slow=self._links(at) if t % MINUTE_S == 0 else None)
                self.fleet.frame(self.fleet.nodes[node], frame, t + 0.2, t - self.begin + 0.2)
                self.history.append([HistoryMessage(node, "s1", t + 0.5, frame, t)], 1)
            self.service.step(t + 0.5, t - self.begin + 0.5)

    def _rows(self, at: int, t: int) -> list[dict[str, float | Absence]]:
        is_slow = t >= self.begin + (self.minutes - 6) * MINUTE_S
        return [{"util_pct": 99.0, "util_max_pct": 100.0, "mem_util_pct": 40.0,
                 "mem_used_bytes": 5e10,
                 "power_w": 350.0 if is_slow and (at, gpu) == (1, self.slow) else 600.0}
                for gpu in range(GPUS)]

    @staticmethod
    def _links(at: int) -> list[dict[str, float | Absence]]:
        """Return links as agents report them: once a minute if unchanged. n1 has no NVLink."""
        return [{"nvlink_tx_bytes_per_s": Absence.UNSUPPORTED if at else (gpu + 1) * 1e9}
                for gpu in range(GPUS)]

    def _tasks(self, at: int) -> Tasks:
        tasks = tuple(Task(f"b{at}:{gpu}:1", gpu + 2, 1, float(self.begin), "bob",
                           "python train.py --lr 1", job_id=f"j{at}", launch=LAUNCH,
                           rank=at * GPUS + gpu) for gpu in range(GPUS))
        return Tasks(True, tasks, tuple(Use(task.id, gpu, 4e10, 90.0)
                                        for gpu, task in enumerate(tasks)))


class InstanceScene(LaunchScene):
    """The same on MIG instances, which report SM activity alone. Only those of the second node
    work, for a second every minute."""

    minutes = 32

    def _rows(self, at: int, t: int) -> list[dict[str, float | Absence]]:
        works = at == 1 and t % MINUTE_S == 0
        return [{"util_pct": Absence.UNSUPPORTED, "mem_used_bytes": 5e10,
                 "sm_active_pct": 80.0 if works else 0.0} for _ in range(GPUS)]


@contextmanager
def played(scene_of: type[LaunchScene], folder: Path) -> Iterator[LaunchScene]:
    with closing(sqlite3.connect(":memory:", isolation_level=None,
                                 factory=SqliteConnection)) as db:
        db.executescript(SCHEMA)
        scene = scene_of(folder / "history", db)
        scene.live()
        yield scene
        scene.history.close()


@pytest.fixture(name="scene", scope="module")
def _scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchScene]:
    with played(LaunchScene, tmp_path_factory.mktemp("jobs")) as scene:
        yield scene


def test_ranks_of_a_launch_stand_side_by_side_and_the_slow_one_is_found(scene: LaunchScene) -> None:
    page = scene.queries.page(scene.queries.question(ADMIN, "j1", None, None))
    assert (page.job.jobs, page.job.hosts, page.job.gpus) == (
        ["j0", "j1"], ["n0.example", "n1.example"], 2 * GPUS)
    assert (page.job.user, page.job.team, page.is_running) == ("bob", "vision", True)
    assert [rank.number for rank in page.ranks] == [*range(2 * GPUS)]
    at = GPUS + scene.slow
    assert page.series["power_w"][at][-2] == pytest.approx(350.0)
    assert page.series["mem_used_bytes"][0][-2] == pytest.approx(4e10)
    [one] = page.findings
    assert (one.kind, one.ranks) == ("slow_rank", [at])
    assert {item.metric: item.against for item in one.evidence}["power_w"] == pytest.approx(600.0)


def test_links_of_the_ranks_stand_side_by_side_where_their_boards_have_them(
        scene: LaunchScene) -> None:
    page = scene.queries.page(scene.queries.question(ADMIN, "j1", None, None))
    for at, values in enumerate(page.series["nvlink_tx_bytes_per_s"]):
        recent = values[-MINUTES + 1 : -1]
        rate = None if at >= GPUS else pytest.approx((at + 1) * 1e9, rel=0.01)
        assert recent == [rate] * len(recent), at


def test_instances_that_a_job_holds_and_does_not_use_are_found(tmp_path: Path) -> None:
    with played(InstanceScene, tmp_path) as scene:
        page = scene.queries.page(scene.queries.question(ADMIN, "j0", None, None))
        [finding] = [one for one in page.findings if one.kind == "unused"]
        assert finding.ranks == [*range(GPUS)], "a burst is in the peak of its minute"
        assert finding.evidence[0].metric == "sm_active_pct"


def test_an_owners_findings_are_those_of_the_pages(scene: LaunchScene) -> None:
    queries = scene.queries
    questions, unchecked = queries.running_questions(ADMIN, "bob")
    [finding] = queries.findings(questions, unchecked).items
    [on_page] = queries.page(queries.question(ADMIN, "j1", None, None)).findings
    assert (finding.jobs, finding.kind, finding.sentence, finding.since, unchecked) == (
        ["j0", "j1"], "slow_rank", on_page.sentence, on_page.since, 0)
    assert queries.running_questions(ADMIN, "ann") == ([], 0)
    elsewhere = Actor("person", "eve", Role.OPERATOR, Scope(("elsewhere",), ()))
    assert queries.running_questions(elsewhere, "bob") == ([], 0)


def test_what_acts_need_is_of_now_and_not_of_the_last_minute(scene: LaunchScene) -> None:
    now = scene.queries.page(scene.queries.question(ADMIN, "j0", None, None)).tasks_now
    assert now is not None
    assert now.ids == [f"b{at}:{gpu}:1" for at in range(2) for gpu in range(GPUS)]
    assert (now.act_on, now.paused) == (["b0:0:1", "b1:0:1"], 0)
    node = scene.fleet.nodes["n0"]
    real = dict(node.tasks)
    node.tasks |= {task_id: structs.replace(task, pid=5_000_000) for task_id, task in real.items()}
    made_up = scene.queries.question(ADMIN, "j0", None, None).tasks_now
    node.tasks |= real
    assert made_up is not None
    assert made_up.act_on == ["b1:0:1"], "what a simulator made up has no process"


def test_tokens_cost_what_the_gpus_cost_meanwhile() -> None:
    def served(tokens_per_s: float | None) -> ServingView:
        values = dict.fromkeys(ServingView.__struct_fields__) | {
            "generated_tokens_per_s": tokens_per_s}
        return ServingView(**values)  # type: ignore[arg-type]

    price, gpus = random.uniform(0.5, 5.0), random.randint(1, 8)
    million_takes_h = 1e6 / (500.0 + 1_500.0) / 3_600
    assert token_cost(price, gpus, [served(500.0), served(1_500.0)]) == pytest.approx(
        price * gpus * million_takes_h)
    for flawed in ([], [served(0.0)], [served(500.0), served(None)]):
        assert token_cost(price, gpus, flawed) is None
    assert token_cost(None, gpus, [served(500.0)]) is None


def test_what_it_held_is_the_same_as_reports_say(scene: LaunchScene) -> None:
    question = scene.queries.question(ADMIN, "j0", None, None)
    whole = scene.history.usage("launch", 0, scene.begin - 3_600, time.time())
    gpu_hours = whole[whole["launch"] == LAUNCH]["gpu_s"].sum() / 3_600
    assert scene.queries.page(question).totals.gpu_hours == pytest.approx(gpu_hours)
    assert gpu_hours == pytest.approx(2 * GPUS * MINUTES * MINUTE_S / EVERY_S / 3_600)


def test_a_viewer_reads_no_command_lines_and_a_stranger_sees_no_job(scene: LaunchScene) -> None:
    question = scene.queries.question(VIEWER, "j0", None, None)
    assert scene.queries.page(question).job.command == "python"
    elsewhere = Actor("person", "eve", Role.OPERATOR, Scope(("elsewhere",), ()))
    with pytest.raises(NotFoundError):
        scene.queries.question(elsewhere, "j0", None, None)
    assert scene.queries.all(elsewhere, None, None, 0.0) == []
    with pytest.raises(NotFoundError):
        scene.queries.question(ADMIN, "no-such", None, None)


def test_a_launch_is_listed_once(scene: LaunchScene) -> None:
    [item] = scene.queries.all(ADMIN, "running", None, 0.0)
    assert (item.jobs, item.tasks, item.ended_at) == (["j0", "j1"], 2 * GPUS, None)
    assert scene.queries.all(ADMIN, "ended", None, 0.0) == []
    assert scene.queries.all(ADMIN, None, "ann", 0.0) == []


def test_a_job_that_history_has_no_minute_of_has_a_page(scene: LaunchScene) -> None:
    early = scene.begin - 3_600.0
    page = scene.queries.page(scene.queries.question(ADMIN, "j0", early, early + 60))
    assert (page.ranks, page.findings, page.job.jobs) == ([], [], ["j0", "j1"])
