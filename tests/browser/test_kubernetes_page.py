"""Kubernetes from the page, its API server over real HTTP: a pod is evicted and a node cordoned by
Kubernetes' own verbs, proven and on the record; refused where a disruption budget forbids it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.demos import ROOT
from tests.fakes.hub import wait_for
from tests.fakes.kube_api import KubeApi, a_node, a_pod
from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_person, signed_in

from .acting import confirm
from .full_agents import _open_page as _open_page

pytestmark = pytest.mark.browser
HOST = "controller"
CEILING = 'actions = ["kubernetes_delete", "kubernetes_evict", "kubernetes_cordon"]'
AGENT = ("import sys; from agent import schedulers; from agent.cli.main import agent; "
         "schedulers.EVERY_S = 1.0; schedulers.LOAD_SHARE = 0; sys.exit(agent(sys.argv[1:]))")


@pytest.fixture(scope="module")
def api() -> Iterator[KubeApi]:
    pods = [a_pod(name, 2) for name in ("train-0", "guarded", "<b>evil")]
    with KubeApi(pods, [a_node("gpu01")], ended_at_once=True, budgeted={"guarded"}
                 ).running() as running:
        yield running


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0, "--kubernetes-nodes", HOST) as hub:
        add_person(hub, "root", "admin")
        yield hub


@pytest.fixture(scope="module")
def speaker(hub: HubProcess, api: KubeApi, tmp_path_factory: pytest.TempPathFactory
            ) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "ceiling.toml").write_text(CEILING + "\n")
    enrolment = signed_in(hub, "root").send("/api/v1/enrolments", {"host": HOST})
    with (folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--hub", hub.url, "--data", str(folder / "data"),
             "--backend", "simulated", "--simulate", "gpus=1", "--host", HOST, "--kubernetes",
             api.url, "--ceiling", str(folder / "ceiling.toml")], cwd=ROOT, stdout=log, stderr=log,
            env={**os.environ, "GPUDECK_TOKEN": enrolment.json["token"]})
    try:
        yield
    finally:
        agent.terminate()
        agent.wait(20)


def test_a_pod_and_a_node_from_the_page(api: KubeApi, speaker: None, hub: HubProcess,
                                        open_page: Callable[..., Page]) -> None:
    page = open_page("/kubernetes")
    row = page.locator("tr[data-pod='research/train-0']")
    expect(row).to_contain_text("Running")
    expect(page.locator("body")).to_contain_text("<b>evil")
    guarded = page.locator("tr[data-pod='research/guarded']")
    guarded.get_by_role("button", name="Evict").click()
    dialog = page.locator("dialog.act-dialog[open]")
    expect(dialog).to_contain_text("disruption budget")
    page.keyboard.press("Escape")
    confirm(page, row.get_by_role("button", name="Evict"), "the node is needed")
    wait_for(lambda: api.pod("research", "train-0") is None)
    expect(row).to_have_count(0)
    row = page.locator("tr[data-kubernetes-node='gpu01']")
    expect(row).to_contain_text("Ready")
    confirm(page, row.get_by_role("button", name="Cordon"), "fans")
    expect(row).to_contain_text("SchedulingDisabled")
    # Its ceiling does not name the way back.
    expect(row.get_by_role("button", name="Uncordon")).to_have_count(0)
    guarded.get_by_role("button", name="Delete").click()
    grace = page.locator("dialog.act-dialog[open] [name=pod_grace_s]")
    grace.fill("5")
    expect(page.locator("dialog.act-dialog[open]")).to_contain_text("with 5 s of grace")
    page.keyboard.press("Escape")
    assert api.changed == [("evict", "train-0"), ("cordon", "gpu01")]
    visitor = signed_in(hub, "root")
    commands = visitor.get("/api/v1/commands?limit=50")["items"]
    assert {(one["action"], one["state"]) for one in commands} == {
        ("kubernetes_evict", "done"), ("kubernetes_cordon", "done")}
    records = str(visitor.get("/api/v1/audit?limit=200")["items"])
    assert all(action in records for action in ("kubernetes_evict", "kubernetes_cordon"))
