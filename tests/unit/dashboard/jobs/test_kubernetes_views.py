from collections.abc import Sequence

from dashboard.access.policy import Actor, Role, Scope
from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.jobs.kubernetes_views import (
    BY_CLAIM,
    SHARED,
    KubernetesClusterView,
    KubernetesPodView,
    kubernetes_list,
)
from gpudeck.contract.kubernetes import (
    KubernetesNode,
    KubernetesNow,
    KubernetesPod,
    PodGpus,
    PodGpusNow,
)
from gpudeck.contract.wire import Task, Tasks, Use
from tests.unit import fleets
from tests.unit.fleets import MONO, NOW

OPERATOR = Actor("person", "ada", Role.OPERATOR, Scope(("*",)))
HOSTS = ("n1.example",)


def a_pod(name: str = "train-0", node: str | None = "n1", gpus: int | None = 2, **keys: object
          ) -> KubernetesPod:
    return KubernetesPod(f"uid-{name}", "research", name, "Running", gpus, node=node,
                         **keys)  # type: ignore[arg-type]


class PodSite:
    def __init__(self, *pods: KubernetesPod) -> None:
        self.fleet, self.seq = Fleet(1), 0
        self.nodes = {name: fleets.add_node(self.fleet, name, gpus=4) for name in ("n1", "n2")}
        for node in self.nodes.values():
            node.are_tasks_known = True
        self.speaker = self.nodes["n1"]
        self.speaker.kubernetes_mono = MONO
        self.speaker.kubernetes = KubernetesNow(NOW, server="https://k", pods=pods, nodes=(
            KubernetesNode("n1", 4, 2), KubernetesNode("n3", 8)))

    def runs(self, name: str, *on: tuple[int, str | None]) -> Node:
        """(GPU, pod)"""
        began = tuple(Task(f"{name}-{at}", at, 1, NOW, "root", "python", container=f"c{at}",
                           pod=pod, namespace=None if pod is None else "research")
                      for at, (_, pod) in enumerate(on))
        uses = tuple(Use(task.id, gpu, 1e9, 5.0) for task, (gpu, _) in zip(began, on, strict=True))
        self.seq += 1
        self.fleet.frame(self.nodes[name], fleets.frame([{}] * 4, self.seq,
                                                        tasks=Tasks(True, began, uses)), NOW, MONO)
        return self.nodes[name]

    def cluster(self, actor: Actor = OPERATOR, hosts: Sequence[str] = HOSTS, mono: float = MONO
                ) -> KubernetesClusterView:
        [cluster] = kubernetes_list(self.fleet, VisibleFleetCache(self.fleet).seen_by(actor), hosts,
                                    mono).items
        return cluster

    def pod(self) -> KubernetesPodView:
        [pod] = self.cluster().pods
        return pod


def test_gpus_that_a_pod_holds_without_a_process_are_counted() -> None:
    site = PodSite(a_pod(gpus=3))
    site.runs("n1", (0, "train-0"), (0, "train-0"), (3, "other"))
    assert (site.pod().used, site.pod().without_process, site.pod().unknown) == (1, 2, "")
    site.runs("n1")
    assert (site.pod().used, site.pod().without_process) == (0, 3)


def test_those_that_hold_the_most_for_nothing_come_first_and_what_waits_last() -> None:
    site = PodSite(a_pod("a", gpus=1), a_pod("b", gpus=2), a_pod("c", None, 4))
    site.runs("n1", (0, "a"))
    assert [pod.name for pod in site.cluster().pods] == ["b", "a", "c"]
    assert site.cluster().pods[2].without_process is None, "it holds none yet"


def test_what_is_not_seen_is_not_counted_as_nothing() -> None:
    assert PodSite(a_pod(node="n3")).pod().unknown == "no live agent on n3"
    site = PodSite(a_pod())
    site.runs("n1", (0, None))
    assert (site.pod().used, site.pod().without_process) == (None, None)
    assert "does not see which pod" in site.pod().unknown
    site.runs("n1", (0, "train-0"), (1, "train-0"), (2, None))
    assert site.pod().without_process == 0, "all that it holds is seen"
    site.speaker.state = "silent"
    assert site.pod().used is None


def test_of_claims_and_of_shared_gpus_no_number_is_made_up() -> None:
    site = PodSite(a_pod(gpus=None))
    site.runs("n1", (0, "train-0"))
    assert (site.pod().without_process, site.pod().unknown) == (None, BY_CLAIM)
    site = PodSite(a_pod(gpus=2, is_shared=True))
    site.runs("n1", (0, "train-0"))
    assert (site.pod().without_process, site.pod().unknown) == (None, SHARED)
    site.runs("n1")
    assert site.pod().without_process == 2


def test_only_a_node_that_the_settings_name_is_believed() -> None:
    site = PodSite(a_pod())
    view = kubernetes_list(site.fleet, VisibleFleetCache(site.fleet).seen_by(OPERATOR), (), MONO)
    assert (view.items, view.ignored) == ([], ["n1.example"])


def test_who_sees_a_part_sees_its_pods_alone() -> None:
    site = PodSite(a_pod("here"), a_pod("far", "n3"), a_pod("waits", None))
    part = Actor("person", "eve", Role.VIEWER, Scope(("default",)))
    assert {pod.name for pod in site.cluster(part).pods} == {"here"}
    assert [node.name for node in site.cluster(part).nodes] == ["n1"]


def test_what_is_old_is_said_to_be() -> None:
    site = PodSite()
    assert [site.cluster(mono=MONO + s).is_stale for s in (30.0, 300.0)] == [False, True]


def give_gpus(site: PodSite, *gpus: int | str) -> None:
    node = site.nodes["n1"]
    assert node.listing is not None
    uuids = tuple(node.listing.inventory.gpus[gpu].uuid if isinstance(gpu, int) else gpu
                  for gpu in gpus)
    node.pod_gpus = PodGpusNow(NOW, pods=(PodGpus("research", "train-0", uuids),))
    node.pod_gpus_mono = MONO


def test_which_gpus_a_pod_was_given_is_the_kubelet_s_word() -> None:
    site = PodSite(a_pod(gpus=2))
    give_gpus(site, 1, 3)
    # On GPU 0 somebody in an unknown container: nothing of this pod is there.
    site.runs("n1", (0, None), (1, "train-0"))
    pod = site.pod()
    assert pod.given is not None
    assert [(gpu.index, gpu.has_process) for gpu in pod.given] == [(1, True), (3, False)]
    assert (pod.used, pod.without_process, pod.unknown) == (1, 1, "")
    site.runs("n1", (1, None), (3, "other"))
    assert (site.pod().used, site.pod().without_process) == (None, None)
    site.runs("n1")
    assert site.pod().without_process == 2


def test_slices_of_one_board_are_one_gpu() -> None:
    for is_shared in (False, True):
        site = PodSite(a_pod(gpus=2, is_shared=is_shared))
        give_gpus(site, 1)
        site.runs("n1", (1, "train-0"))
        assert (site.pod().used, site.pod().without_process) == (1, 0)


def test_what_no_kubelet_says_now_is_not_taken_for_its_word() -> None:
    site = PodSite(a_pod(gpus=2))
    site.runs("n1", (1, "train-0"))
    assert (site.pod().given, site.pod().without_process) == (None, 1)
    give_gpus(site, 1, "0")  # a plugin that gives out indexes: no GPU of the node
    pod = site.pod()
    assert [gpu.index for gpu in pod.given or ()] == [1, None]
    assert pod.without_process == 1, "counted by processes then"
    give_gpus(site, 0, 1)
    assert site.cluster(mono=MONO + 300.0).pods[0].given is None
    site.nodes["n1"].pod_gpus = PodGpusNow(NOW, "no such socket")
    assert site.pod().given is None


def test_what_can_be_asked_fits_what_it_is() -> None:
    assert PodSite(a_pod()).pod().may == ["evict", "delete"]
    assert PodSite(a_pod(is_leaving=True)).pod().may == ["delete"], "with a shorter grace"
    assert PodSite(a_pod(is_mirror=True)).pod().may == []
    cluster = PodSite(a_pod()).cluster()
    assert [node.may for node in cluster.nodes] == [["cordon"], ["cordon"]]
    assert (cluster.rights, cluster.actions) == (None, [])
