"""The page of a job and the host on a node's page, in a real browser: what they say is what the
agent told."""

import random
import time
from collections.abc import Callable
from urllib.parse import quote

import msgspec
import pytest
from playwright.sync_api import Page, expect

from gpudeck.contract.hosts import HOST, HostSample, HostTask
from gpudeck.contract.kubernetes import KubernetesNode, KubernetesNow, KubernetesPod
from gpudeck.contract.serving import ServingSample
from gpudeck.contract.wire import Tasks, Use
from tests.demos import soon
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess, one_task
from tests.integration.visitors import signed_in

from .full_agents import Node
from .test_look import axe_source

pytestmark = pytest.mark.browser
TASK = one_task().began[0]


@pytest.fixture(name="host", scope="module")
def _host(node: Node) -> HostSample:
    lots = random.Random()
    numbers = {metric.key: 0.0 for metric in HOST} | {
        "cpu_pct": float(lots.randint(2, 98)), "cpus": float(lots.randint(2, 256)),
        "io_pressure_pct": float(lots.randint(1, 99)), "disk_full_pct": float(lots.randint(1, 99)),
        "mem_total_bytes": 64 * 2.0**30, "mem_used_bytes": lots.randint(1, 63) * 2.0**30}
    del numbers["rdma_rx_bytes_per_s"]
    node.teller.host = HostSample(
        numbers, {"rdma_rx_bytes_per_s": "unsupported"},
        (HostTask(TASK.id, 150.0, 2e9, 1e6, 0.0, 0.0),),
        (ServingSample(TASK.id, "vllm", "", 5.0, 6.0, 10.0, float(lots.randint(100, 999)),
                       float(lots.randint(2, 90)), 0.0, 25.0, 0.25, 0.01, 2.0),))
    return node.teller.host


def test_a_nodes_page_says_what_its_host_does(
        hub: HubProcess, node: Node, host: HostSample, open_page: Callable[..., Page]) -> None:
    page = open_page(f"/node/{node.teller.node_id}")
    of = host.numbers
    expected_words = (f"{of['cpu_pct']:.0f} % of {of['cpus']:.0f} processors",
                      f"disk {of['io_pressure_pct']:.0f} %", f"fullest {of['disk_full_pct']:.0f} %",
                      "of 64.0 GiB", "unsupported")
    assert soon(lambda: all(words in page.inner_text("#lines-side") for words in expected_words)), (
        expected_words, page.inner_text("#lines-side"))
    host_load = signed_in(hub, "root").get(f"/api/v1/nodes/{node.teller.node_id}")["host_load"]
    assert host_load["numbers"] == of
    assert host_load["missing"] == host.missing


def test_a_jobs_page_says_what_its_server_does(
        hub: HubProcess, node: Node, host: HostSample, open_page: Callable[..., Page]) -> None:
    visitor, job = signed_in(hub, "root"), TASK.job_id or TASK.id
    assert soon(lambda: visitor.get("/api/v1/jobs")["total"] > 0)
    page = open_page(f"/job/{job}")
    (server,) = host.serving
    expected_words = (f"{server.generated_tokens_per_s:.0f} tokens/s",
                      f"{server.running:.0f} requests running", "KV cache 25 %",
                      "per million tokens")
    assert soon(lambda: all(words in page.inner_text("#job-facts") for words in expected_words)), (
        expected_words, page.inner_text("#job-facts"))
    buttons = page.locator("#job-metric button").all_inner_texts()
    assert buttons[-2:] == ["Host CPU", "Disk pressure"]
    page.locator("#job-metric button").last.click()
    page.wait_for_url("**metric=io_pressure_pct*")


def test_a_row_of_tasks_says_how_its_job_does_and_leads_to_it(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    visitor, job = signed_in(hub, "root"), TASK.job_id or TASK.id
    assert soon(lambda: visitor.get("/api/v1/jobs")["total"] > 0)
    for width in (1440, 390):
        page = open_page("/tasks?group=job", width=width)
        row = page.locator(".t-group").first
        row.wait_for()
        expect(row.locator(".t-state")).to_have_text("running")
        if width == 1440:
            assert row.locator(".t-manager").inner_text() != ""
            assert not row.locator(".t-job").is_visible(), "an id that says no more"
        row.locator(".t-command a").click()
        page.wait_for_url(f"**/job/{quote(job, safe='')}")


def test_hours_of_before_the_hub_first_heard_of_a_job_are_not_made_up(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    """A job that began under this hub has all of its hours, and no remark stands there."""
    visitor, young = signed_in(hub, "root"), f"boot-1:{random.randrange(1_000, 30_000)}:7"
    tasks = Tasks(True, (msgspec.structs.replace(TASK, id=young, pid=int(young.split(":")[1]),
                                                 started_at=time.time()),),
                  (Use(young, 0, 1e9, 50.0, "running"),))
    teller = Teller(f"young{random.randrange(1000)}")
    teller.connect(hub)
    job_by_id, began = {}, TASK.started_at or 0

    def listed() -> bool:
        teller.tell(tasks)
        teller.beat()
        job_by_id.update({one["id"]: one for one in visitor.get("/api/v1/jobs?limit=50")["items"]})
        return young in job_by_id and len(job_by_id) > 1

    assert soon(listed), job_by_id
    (old,) = (one for one in job_by_id.values() if one["started_at"] == began)
    young_seen_at = job_by_id[young]["first_seen"]
    assert old["first_seen"] - began > 120 > young_seen_at - tasks.began[0].started_at
    words = "GPU-hours, as far as recorded"
    for job, is_partly in ((old["id"], True), (young, False)):
        facts = open_page(f"/job/{job}").locator("#job-facts")
        facts.get_by_text("GPU-hours").first.wait_for()
        assert (words in facts.inner_text()) is is_partly, facts.inner_text()
    teller.close()


def test_a_job_has_its_page_from_its_first_frame_on(
        hub: HubProcess, node: Node, open_page: Callable[..., Page]) -> None:
    visitor, job = signed_in(hub, "root"), f"boot-2:{random.randrange(1_000, 30_000)}:7"
    # Time enough to the end of a minute, which would be history already.
    assert soon(lambda: time.time() % 60 < 40)
    teller = Teller(f"new{random.randrange(1000)}")
    teller.connect(hub)
    teller.tell(Tasks(True, (msgspec.structs.replace(
        TASK, id=job, pid=int(job.split(":")[1]), command="python first.py",
        started_at=time.time()),), (Use(job, 0, 1e9, 50.0, "running"),)))
    assert soon(lambda: job in [one["id"] for one in visitor.get("/api/v1/tasks?limit=9")["items"]])
    page = visitor.get(f"/api/v1/jobs/{job}")  # answered at once
    assert (page["job"]["command"], page["is_running"], page["ranks"]) == (
        "python first.py", True, [])
    tasks_page = open_page("/tasks")
    tasks_page.add_init_script("""window.titles = []; new MutationObserver(() => {
        const title = document.querySelector("#job-title")?.textContent;
        if (title && title !== window.titles.at(-1)) window.titles.push(title);
    }).observe(document, {subtree: true, childList: true, characterData: true});""")
    tasks_page.locator(f'a[href="/job/{quote(job, safe="")}"]').first.click()
    expect(tasks_page.locator("#job-title")).to_have_text("first.py")
    expect(tasks_page.locator("#job-scale")).to_contain_text("A new job")
    assert tasks_page.evaluate("window.titles") == ["…", "first.py"], "no flash of something else"
    for _ in range(2):  # it asks again, so that it fills by itself
        with tasks_page.expect_request("**/_dash-update-component*"):
            pass
    teller.close()


def test_pods_that_hold_gpus_without_a_process_come_first(hub: HubProcess, node: Node,
                                                          open_page: Callable[..., Page]) -> None:
    kube, gpus = Node(hub, "kube").start(), random.randint(2, 8)
    kube.teller.say(KubernetesNow(1.0, server="https://k:6443", version="v1.31.2", pods=(
        KubernetesPod("u1", "research", "<b>waits", "Pending", 4, reason="Unschedulable"),
        KubernetesPod("u2", "research", "idle-0", "Running", gpus, node="host-kube")),
        nodes=(KubernetesNode("host-kube", 8, gpus, is_cordoned=True),)))
    page = open_page("/kubernetes")
    rows = page.locator("tr[data-pod]")
    assert soon(lambda: rows.count() == 2)
    # The node's own task is in no container: none of it can be the pod's.
    assert soon(lambda: rows.first.locator("td").nth(5).inner_text() == str(gpus))
    assert "<b>waits" in rows.last.inner_text()
    assert f"{gpus} of 8" in page.inner_text("[aria-label=Nodes]")
    assert f"{gpus} GPUs allocated without a process" in page.inner_text("#kubernetes-words")
    page.evaluate(axe_source())
    assert page.evaluate("axe.run(document).then(({violations}) => violations.map("
                         "({id}) => id))") == []
    kube.teller.say(KubernetesNow(2.0, "the API server answers 403 to /api/v1/pods"))
    assert soon(lambda: "answers 403" in page.inner_text("#kubernetes-place"))
    kube.stop()
    page = open_page("/tasks")
    assert soon(lambda: page.locator("#tasks-kubernetes").is_visible())
