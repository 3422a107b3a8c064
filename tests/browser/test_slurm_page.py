"""Debian's own Slurm from the page: what it holds for nothing is listed; a job is cancelled and a
node drained by Slurm's verbs, proven and on the record."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.demos import ROOT
from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.visitors import add_person, signed_in
from tests.slurm_cluster import NODE, SlurmCluster, a_cluster

from .acting import confirm
from .full_agents import _open_page as _open_page

pytestmark = pytest.mark.browser
HOST = socket.gethostname().partition(".")[0]  # as slurm.conf calls the node of the tests
ACTIONS = ("slurm_cancel", "slurm_hold", "slurm_release", "slurm_drain", "slurm_resume")
CEILING = f"actions = {[*ACTIONS]}"
AGENT = ("import sys; from agent import schedulers; from agent.cli.main import agent; "
         "schedulers.EVERY_S = 1.0; schedulers.LOAD_SHARE = 0; sys.exit(agent(sys.argv[1:]))")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0, "--slurm-nodes", HOST) as hub:
        add_person(hub, "root", "admin")
        yield hub


@pytest.fixture(scope="module")
def speaker(hub: HubProcess, cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory
            ) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "ceiling.toml").write_text(CEILING + "\n")
    enrolment = signed_in(hub, "root").send("/api/v1/enrolments", {"host": HOST})
    token = enrolment.json["token"]
    with (folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, "--hub", hub.url, "--data", str(folder / "data"),
             "--backend", "simulated", "--simulate", "gpus=1", "--host", HOST, "--slurm",
             "--ceiling", str(folder / "ceiling.toml")], cwd=ROOT, stdout=log, stderr=log,
            env={**os.environ, "SLURM_CONF": cluster.conf, "GPUDECK_TOKEN": token})
    try:
        yield
    finally:
        agent.terminate()
        agent.wait(20)


def test_a_job_and_a_node_from_the_page(cluster: SlurmCluster, speaker: None, hub: HubProcess,
                                        open_page: Callable[..., Page]) -> None:
    idle, other = cluster.submit("--gres=gpu:2", "-J", "<b>evil"), cluster.submit("--gres=gpu:1")
    wait_for(lambda: cluster.state(idle) == cluster.state(other) == "RUNNING")
    waiting = cluster.submit("--gres=gpu:8")
    page = open_page("/slurm")
    row = page.locator(f"tr[data-job='{idle}']")
    expect(row).to_contain_text("<b>evil")
    expect(row).to_contain_text("RUNNING")
    expect(row.locator("td").nth(6)).to_have_text("2")  # allocated, and no process of it is there
    assert page.locator("tr[data-job]").first.get_attribute("data-job") == str(idle)
    expect(row.get_by_role("button", name="Requeue")).to_have_count(0)
    confirm(page, row.get_by_role("button", name="Cancel"), "nobody uses it")
    wait_for(lambda: cluster.state(idle) in ("CANCELLED", ""))
    assert cluster.state(other) == "RUNNING"
    expect(row).to_have_count(0)
    queued = page.locator(f"tr[data-job='{waiting}']")
    confirm(page, queued.get_by_role("button", name="Hold"), "after the others")
    wait_for(lambda: "JobHeld" in cluster.run("squeue", "-h", "-j", str(waiting), "-o", "%r"))
    confirm(page, queued.get_by_role("button", name="Release"), "now")
    wait_for(lambda: "JobHeld" not in cluster.run("squeue", "-h", "-j", str(waiting), "-o", "%r"))
    node = page.locator(f"tr[data-slurm-node='{NODE}']")
    confirm(page, node.get_by_role("button", name="Drain"), "fans")
    expect(node).to_contain_text("DRAIN")
    expect(node).to_contain_text("gpudeck, root: fans")
    confirm(page, node.get_by_role("button", name="Resume"), "mended")
    assert "DRAIN" not in cluster.node_state()
    visitor = signed_in(hub, "root")
    commands = visitor.get("/api/v1/commands?limit=50")["items"]
    assert {(one["action"], one["state"]) for one in commands} == {
        (action, "done") for action in ACTIONS}
    records = str(visitor.get("/api/v1/audit?limit=200")["items"])
    assert all(action in records for action in ACTIONS)
