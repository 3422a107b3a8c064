from dashboard.fleet.fleet import Fleet
from dashboard.jobs.unused_allocations import unused_by_node
from gpudeck.contract.kubernetes import KubernetesNow
from tests.unit.dashboard.jobs.test_kubernetes_views import PodSite, a_pod
from tests.unit.dashboard.jobs.test_slurm_views import SlurmSite, a_job
from tests.unit.fleets import MONO, NOW

HOSTS = ("n1.example",)


def of_slurm(site: SlurmSite, hosts: tuple[str, ...] = HOSTS, mono: float = MONO
             ) -> dict[str, float]:
    return unused_by_node(site.fleet, hosts, (), mono)


def test_gpus_of_slurm_without_a_process_count_on_their_own_nodes() -> None:
    site = SlurmSite(a_job(1, ("n1", "n2"), gpus=4), a_job(2, ("n2",), gpus=1),
                     a_job(3, ("n1",), gpus=4, state="PENDING"))
    site.runs("n1", (0, "1", "carol"))
    site.runs("n2", (0, "1", "carol"), (1, "1", "carol"))
    ids = [site.nodes[name].hello.node_id for name in ("n1", "n2")]
    assert of_slurm(site) == dict(zip(ids, (1.0, 1.0), strict=True))
    site.runs("n2", (0, "1", "carol"), (1, "1", "carol"), (2, "2", "carol"))
    assert of_slurm(site)[ids[1]] == 0.0


def test_what_is_not_known_adds_nothing() -> None:
    site = SlurmSite(a_job(1, ("n1",), gpus=2))
    site.runs("n1", (0, None, "carol"))
    assert set(of_slurm(site).values()) == {0.0}, "her task may be the job's"
    site.runs("n1")
    assert of_slurm(site)[site.nodes["n1"].hello.node_id] == 2.0
    assert of_slurm(site, hosts=()) == {}, "nobody speaks for Slurm"
    assert of_slurm(site, mono=MONO + 300.0) == {}, "what is old says nothing of now"


def test_pods_count_too() -> None:
    site = PodSite(a_pod(gpus=3), a_pod("waits", None, 4))
    site.runs("n1", (0, "train-0"))
    node_id = site.speaker.hello.node_id
    assert unused_by_node(site.fleet, (), HOSTS, MONO) == {node_id: 2.0}
    site.speaker.kubernetes = KubernetesNow(NOW, "the API server answers 403")
    assert unused_by_node(site.fleet, (), HOSTS, MONO) == {}
    assert unused_by_node(Fleet(1), HOSTS, HOSTS, MONO) == {}
