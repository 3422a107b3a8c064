"""Acts on Kubernetes from the order to what reads back, over real HTTP: on the record, by uid, and
refused in words."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from agent.actions.kinds import kubernetes
from agent.kubernetes.api_server import ApiServer
from agent.schedulers import Schedulers
from gpudeck.contract.kubernetes import (
    KubernetesCordon,
    KubernetesDelete,
    KubernetesEvict,
    KubernetesUncordon,
)
from tests.fakes.children import Children
from tests.fakes.hub import wait_for
from tests.fakes.kube_api import KubeApi, a_node, a_pod
from tests.integration.limits_bench import Bench, codes, done, shown

ACTIONS = ["kubernetes_delete", "kubernetes_evict", "kubernetes_cordon", "kubernetes_uncordon"]
EVICT = KubernetesEvict("research", "train-0", "uid-train-0")
DELETE = KubernetesDelete("research", "train-0", "uid-train-0", grace_s=5)


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi([a_pod("train-0", 2), a_pod("other", 1)], [a_node("gpu01")]).running() as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    children = Children()
    yield Bench(tmp_path, children)
    children.close()


def schedulers_of(api: KubeApi) -> Schedulers:
    return Schedulers(kubernetes=ApiServer.of(api.url, None, None))


def names(api: KubeApi) -> list[str]:
    return [pod["metadata"]["name"] for pod in api.pods]


def test_a_pod_is_evicted_and_gone_once_its_kubelet_has_ended_it(api: KubeApi, bench: Bench
                                                                 ) -> None:
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        look = shown(here, EVICT)
        assert look.refusals == ()
        assert look.changes[0].what == "pod research/train-0 of Job/train"
        assert look.changes[0].after == "evicted, with 30 s of grace"
        assert "It holds 2 GPUs." in look.warnings
        assert api.changed == [], "looking changes nothing"

        def kubelet() -> None:
            wait_for(lambda: bool(api.changed))
            api.kubelet_ends("train-0")

        ending = Thread(target=kubelet)
        ending.start()
        reply = here.act(look, "a test", "ada")
        ending.join()
        assert (reply.state, reply.verified and reply.verified.in_force) == ("done", True)
        assert "has it no more" in reply.step
        assert (api.changed, names(api)) == ([("evict", "train-0")], ["other"])
        assert codes(here, EVICT) == ["gone"]


def test_accepted_is_not_called_gone(api: KubeApi, bench: Bench, monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    monkeypatch.setattr(kubernetes, "READ_BACK_S", 0.0)
    monkeypatch.setattr(kubernetes, "GRACE_WAITED_S", 0.0)
    deletion = KubernetesDelete("research", "train-0", "uid-train-0", grace_s=3_600)
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        reply = done(here, deletion)
        assert reply.verified is not None
        assert (reply.verified.applied, reply.verified.in_force) == (True, None)
        assert "it has until" in reply.step
    assert names(api) == ["train-0", "other"]


def test_a_pod_that_outlives_its_grace_is_not_called_done(
        api: KubeApi, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "READ_BACK_S", 4.0)
    deletion = KubernetesDelete("research", "train-0", "uid-train-0", grace_s=1)
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        reply = done(here, deletion)
    assert reply.state == "not_effective"
    assert "is the kubelet of its node up?" in reply.step


def test_what_changes_between_look_and_act_is_refused_by_the_server(
        api: KubeApi, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        look = shown(here, EVICT)
        api.budgeted = {"train-0"}
        reply = here.act(look, "a test", "ada")
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "budget")
        api.budgeted = set()
        look, real = shown(here, DELETE), ApiServer.end

        def replaced(self: ApiServer, request: KubernetesDelete, is_dry: bool) -> None:
            """A StatefulSet makes the next one after the last look."""
            if not is_dry:
                api.pods[0]["metadata"]["uid"] = "uid-of-the-next"
            real(self, request, is_dry)

        monkeypatch.setattr(ApiServer, "end", replaced)
        reply = here.act(look, "a test", "ada")
        assert (reply.state, reply.refusal and reply.refusal.code) == ("refused", "gone")
        assert "UID in precondition" in (reply.refusal.sentence if reply.refusal else "")
    assert api.changed == []


def test_a_node_is_cordoned_and_returns(api: KubeApi, bench: Bench) -> None:
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        assert codes(here, KubernetesUncordon("gpu01")) == ["setting"]
        assert done(here, KubernetesCordon("gpu01")).state == "done"
        assert api.nodes[0]["spec"]["unschedulable"] is True
        assert codes(here, KubernetesCordon("gpu01")) == ["setting"]
        assert done(here, KubernetesUncordon("gpu01")).state == "done"
    assert api.changed == [("cordon", "gpu01"), ("uncordon", "gpu01")]


def test_no_ceiling_permits_it_that_does_not_name_it(api: KubeApi, bench: Bench) -> None:
    with bench.here(schedulers=schedulers_of(api)) as here:
        assert codes(here, EVICT) == codes(here, KubernetesCordon("gpu01")) == ["type"]
    with bench.here(actions=ACTIONS) as here:
        [refusal] = shown(here, EVICT).refusals
        assert "--kubernetes" in refusal.sentence
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        api.may = set()
        [refusal] = shown(here, EVICT).refusals
        assert (refusal.code, "cannot create resource" in refusal.sentence) == ("permission", True)
    assert api.changed == []


def test_kills_per_hour_counts_pods_too(api: KubeApi, bench: Bench) -> None:
    api.ended_at_once = True
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS, kills_per_hour=1) as here:
        assert done(here, EVICT).state == "done"
        other = KubernetesEvict("research", "other", "uid-other")
        assert codes(here, other) == ["budget"]
    assert names(api) == ["other"]


def test_a_server_that_dies_meanwhile_leaves_it_unknown(
        api: KubeApi, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "READ_BACK_S", 1.0)
    with bench.here(schedulers=schedulers_of(api), actions=ACTIONS) as here:
        look, real = shown(here, EVICT), ApiServer.end

        def dies(self: ApiServer, request: KubernetesEvict, is_dry: bool) -> None:
            real(self, request, is_dry)
            if not is_dry:
                api.raw = b"{"

        monkeypatch.setattr(ApiServer, "end", dies)
        began = time.monotonic()
        reply = here.act(look, "a test", "ada")
        assert time.monotonic() - began < 60
    assert reply.state == "not_effective"
    assert reply.verified is not None
    assert (reply.verified.applied, reply.verified.in_force) == (False, None)
    assert "look at Kubernetes" in reply.step
