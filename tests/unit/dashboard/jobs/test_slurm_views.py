from collections.abc import Sequence

from dashboard.access.policy import Actor, Role, Scope
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.jobs.kubernetes_views import KubernetesList
from dashboard.jobs.prometheus import scheduler_families
from dashboard.jobs.slurm_views import SlurmClusterView, SlurmJobView, SlurmList, slurm_list
from gpudeck.contract.slurm import SlurmJob, SlurmNode, SlurmNow, SlurmShare
from gpudeck.contract.wire import Task, Tasks, Use
from tests.unit import fleets
from tests.unit.fleets import MONO, NOW

OPERATOR = Actor("person", "ada", Role.OPERATOR, Scope(("*",)))


def a_job(number: int = 12, nodes: Sequence[str] = ("n1",), gpus: int = 2, user: str = "carol",
          state: str = "RUNNING", **keys: object) -> SlurmJob:
    return SlurmJob(number, str(number), state, NOW, user, "train", gpus=gpus, nodes=tuple(
        SlurmShare(node, gpus // len(nodes)) for node in nodes), **keys)  # type: ignore[arg-type]


class SlurmSite:
    def __init__(self, *jobs: SlurmJob) -> None:
        self.fleet = Fleet(1)
        self.seq = 0
        self.nodes = {name: self.live(name) for name in ("n1", "n2")}
        self.speaker = self.nodes["n1"]
        self.speaker.slurm_mono = MONO
        self.speaker.slurm = SlurmNow(NOW, cluster="c", rights="all", jobs=jobs, nodes=tuple(
            SlurmNode(name, f"{name}.cluster", ("MIXED",), 4, 2) for name in ("n1", "n2", "n3")))

    def live(self, name: str) -> Node:
        node = fleets.add_node(self.fleet, name, gpus=4)
        node.are_tasks_known = True
        return node

    def runs(self, name: str, *on: tuple[int, str | None, str]) -> None:
        """(GPU, job of Slurm, user)"""
        node = self.nodes[name]
        began = tuple(Task(f"{name}-{at}", at, 1, NOW, user, "python", slurm_job=job)
                      for at, (_, job, user) in enumerate(on))
        uses = tuple(Use(task.id, gpu, 1e9, 5.0)
                     for task, (gpu, _, _) in zip(began, on, strict=True))
        self.seq += 1
        self.fleet.frame(node, fleets.frame([{}] * 4, self.seq, tasks=Tasks(True, began, uses)),
                         NOW, MONO)

    def list(self, actor: Actor = OPERATOR, hosts: Sequence[str] = ("n1.example",),
             mono: float = MONO) -> SlurmList:
        return slurm_list(self.fleet, VisibleFleetCache(self.fleet).seen_by(actor), hosts, mono)

    def cluster(self, actor: Actor = OPERATOR) -> SlurmClusterView:
        [cluster] = self.list(actor).items
        return cluster

    def job(self) -> SlurmJobView:
        [job] = self.cluster().jobs
        return job


def test_gpus_that_a_job_holds_without_a_process_are_counted() -> None:
    site = SlurmSite(a_job(nodes=("n1", "n2"), gpus=4))
    site.runs("n1", (0, "12", "carol"), (0, "12", "carol"), (3, "13", "carol"))
    site.runs("n2", (1, "12", "carol"), (2, "12", "carol"))
    assert (site.job().used, site.job().without_process) == (3, 1)
    site.runs("n2")
    assert (site.job().used, site.job().without_process) == (1, 3)


def test_what_is_allocated_is_a_metric_whose_parts_are_the_whole() -> None:
    site = SlurmSite(a_job(1, gpus=3), a_job(2, ("n3",), gpus=2), a_job(3, gpus=4, state="PENDING"))
    site.runs("n1", (0, "1", "carol"))
    visible = VisibleFleetCache(site.fleet).seen_by(OPERATOR)
    text = "".join(scheduler_families(
        slurm_list(site.fleet, visible, ("n1.example",), MONO), KubernetesList([], [])))
    values = [line for line in text.splitlines() if not line.startswith("#")]
    assert values == [
        *(f'gpudeck_scheduler_gpus{{scheduler="slurm",cluster="c",state="{state}"}} {count}'
          for state, count in (("used", 1), ("without_process", 2), ("unknown", 2))),
        'gpudeck_scheduler_job_gpus_without_process{scheduler="slurm",cluster="c",job="1",'
        'owner="carol"} 2']


def test_those_that_hold_the_most_for_nothing_come_first() -> None:
    site = SlurmSite(a_job(1, gpus=1), a_job(2, gpus=2), a_job(3, gpus=4, state="PENDING"))
    site.runs("n1", (0, "1", "carol"))
    assert [job.number for job in site.cluster().jobs] == [2, 1, 3]
    assert site.cluster().jobs[2].without_process is None, "it holds none yet"


def test_a_part_that_is_not_seen_is_not_counted_as_nothing() -> None:
    site = SlurmSite(a_job(nodes=("n1", "n3"), gpus=2))
    site.runs("n1", (0, "12", "carol"))
    assert (site.job().used, site.job().unknown) == (None, "no live agent on n3")
    site = SlurmSite(a_job(nodes=("n2",), gpus=2))
    site.runs("n2", (0, None, "carol"))
    assert (site.job().used, "grant it owners" in site.job().unknown) == (None, True)
    site.runs("n2", (0, None, "bob"))
    assert site.job().used == 0, "another user's task is not one of this job"
    site.nodes["n2"].state = "silent"
    assert site.job().used is None


def test_only_a_node_that_the_settings_name_is_believed() -> None:
    site = SlurmSite(a_job())
    assert (site.list(hosts=()).items, site.list(hosts=()).ignored) == ([], ["n1.example"])
    assert site.list(hosts=("n2.example",)).items == []


def test_what_is_old_is_not_passed_off_as_live() -> None:
    site = SlurmSite(a_job())
    assert not site.cluster().is_stale
    assert site.list(mono=MONO + 120).items[0].is_stale
    site.speaker.disconnect()
    assert site.cluster().is_stale
    site.fleet.dismiss("n1", NOW)
    assert site.list().items == []


def test_who_sees_a_part_is_told_of_that() -> None:
    site = SlurmSite(a_job(1, ("n1",)), a_job(2, ("n2",)), a_job(3, ("n1", "n2")),
                     a_job(4, ("n2",), user="bob"), SlurmJob(
                         5, "5", "PENDING", NOW, "carol",
                         "secret", gpus=1))
    site.fleet.set_group("n1", "rack1")
    viewer = Actor("person", "bob", Role.USER, Scope(("rack1",), ("bob",)))
    cluster = site.cluster(viewer)
    assert [job.number for job in cluster.jobs] == [1, 4]
    assert [job.name for job in cluster.jobs] == ["", "train"], "a name may tell what it is of"
    assert [node.name for node in cluster.nodes] == ["n1"]


def test_what_may_be_asked_fits_the_state() -> None:
    def may(**keys: object) -> list[str]:
        return SlurmSite(a_job(**keys)).job().may  # type: ignore[arg-type]

    assert may() == ["suspend", "requeue", "cancel"]
    assert may(state="SUSPENDED") == ["continue", "requeue", "cancel"]
    assert may(state="PENDING") == ["cancel", "hold"]
    assert may(state="PENDING", reason="JobHeldAdmin") == ["cancel", "release"]
    assert may(state="COMPLETING") == ["cancel"]
    assert may(is_het=True) == []
    cut = SlurmSite(SlurmJob(3, "3_[...]", "PENDING", NOW, "carol", gpus=1))
    assert cut.job().may == [], "Slurm's programs would not take that name"
