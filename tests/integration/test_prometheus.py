"""/metrics of a real hub and a real agent: read by a real Prometheus, checked by promtool."""

import gzip
import json
import random
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudeck.client.hub import Client
from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolReport
from gpudeck.pool.core.claims import Claim
from tests.fakes.hub import FakeHub
from tests.fakes.nvml import FakeNvml
from tests.integration.hubs import HubProcess, WireAgent, one_task, wait_for
from tests.integration.test_agent_process import an_agent
from tests.machine import required
from tests.ports import free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "prometheus.md"
# What promtool says of dcgm-exporter's own names too, and of nothing that is ours.
DIALECT = re.compile(r"DCGM_\w+ (counter metrics should have|metric names should|use base unit|"
                     r"label names should|non-counter metrics should|metric name should|"
                     r"no help text).*|gpudeck_gpu_\w+ label names should .*")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("prometheus") / "hub") as running:
        yield running


@pytest.fixture(scope="module")
def agent(hub: HubProcess) -> WireAgent:
    agent = WireAgent(f"p{random.randrange(10**6)}")
    agent.connect(hub)
    agent.tick(one_task())
    agent.say(PoolReport(tuple(OfferedGpu(gpu.uuid, gpu.name, gpu.index)
                               for gpu in agent.facts), (NodeClaim(Claim(
        id="c", owner="alice", gpus=2, submitted_at=time.time()), True),), ()))
    wait_for(lambda: b"DCGM_FI_DEV_GPU_UTIL" in hub.ask("/metrics").body, why="a sample")
    return agent


def samples(text: str, name: str) -> dict[str, float]:
    """Return the samples of this metric by the `gpu` label."""
    rows = re.findall(rf'^{name}{{gpu="(\d+)",[^\n]*}} (\S+)$', text, re.M)
    return {gpu: float(value) for gpu, value in rows}


def test_what_the_api_says(hub: HubProcess, agent: WireAgent) -> None:
    def same() -> bool:
        agent.tick()
        text = hub.ask("/metrics").body.decode()
        sampled = {str(at): value for at, value in enumerate(agent.util)}
        exported = samples(text, "DCGM_FI_DEV_GPU_UTIL")
        return exported.keys() == sampled.keys() and all(
            abs(exported[gpu] - value) < 1e-9 for gpu, value in sampled.items())

    wait_for(same, why="the newest sample")
    text = hub.ask("/metrics").body.decode()
    assert 'gpudeck_owner_gpus{user="alice"} 1' in text
    assert f'Hostname="{agent.caller.said.host}"' in text
    assert samples(text, "DCGM_FI_DEV_GPU_TEMP") == {"0": 1.0, "1": 1.0}


def test_packed_for_those_who_take_it_and_closed_to_strangers(hub: HubProcess, agent: WireAgent
                                                             ) -> None:
    packed = hub.ask("/metrics", Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"gpudeck_build_info" in gzip.decompress(packed.body)
    stranger = hub.ask("/metrics", token=None)
    assert (stranger.status, b"gpudeck_build_info" in stranger.body) == (401, False)
    assert "WWW-Authenticate" in stranger.headers
    some = hub.ask("/metrics?name[]=gpudeck_agent_up&name[]=DCGM_FI_DEV_GPU_TEMP").body.decode()
    assert set(re.findall(r"^# TYPE (\w+)", some, re.M)) == {
        "gpudeck_agent_up", "DCGM_FI_DEV_GPU_TEMP"}
    assert hub.ask("/metrics?name[]=DCGM_FI_DEV_GPU_TEMPERATURE").status == 400
    assert hub.ask("/metrics?names=x").status == 400


def quota_samples(text: str, name: str) -> dict[str, float]:
    """Return the samples of the quota `held` by the rest of the labels."""
    rows = re.findall(rf'^{name}{{quota="held",([^\n]*)}} (\S+)$', text, re.M)
    return {about: float(value) for about, value in rows}


def test_quotas_say_what_they_give_and_who_is_over(hub: HubProcess, agent: WireAgent) -> None:
    gpus = random.randrange(2)  # alice is on one
    client = Client(hub.url, hub.api_token)
    client.put_quota("held", {"subject": "*", "gpus": gpus})
    hidden = client.hub.ask_for("POST", "tokens", {
        "name": "hidden", "role": "viewer", "groups": ["elsewhere"],
        "expires_at": time.time() + 600})["token"]

    def text() -> str:
        agent.tick()
        return hub.ask("/metrics").body.decode()

    wait_for(lambda: quota_samples(text(), "gpudeck_quota_used"), why="a sum")
    page, about = text(), 'subject="*",scope="fleet",limit="gpus"'
    assert quota_samples(page, "gpudeck_quota_limit") == {
        f'{about},mode="observe",count="each"': gpus}
    assert quota_samples(page, "gpudeck_quota_used") == {f'{about},holder="alice"': 1.0}
    assert quota_samples(page, "gpudeck_quota_over") == {
        f'{about},holder="alice"': float(gpus < 1)}
    assert quota_samples(page, "gpudeck_quota_nodes")['state="wanted"'] >= 1
    assert quota_samples(page, "gpudeck_quota_nodes")['state="in_force"'] == 0
    hidden_page = hub.ask("/metrics", token=hidden).body.decode()
    assert "alice" not in hidden_page
    assert quota_samples(hidden_page, "gpudeck_quota_used") == {}
    only = hub.ask("/metrics?name[]=gpudeck_quota_used").body.decode()
    assert set(re.findall(r"^# TYPE (\w+)", only, re.M)) == {"gpudeck_quota_used"}


def checked(text: str) -> list[str]:
    run = subprocess.run([required("promtool"), "check", "metrics"], input=text, text=True,
                         capture_output=True, timeout=30, check=False)
    complaints = (run.stdout + run.stderr).splitlines()
    # 3: only names are complained of; 1: the text is broken.
    assert run.returncode in (0, 3), complaints
    return complaints


def test_promtool_finds_no_fault(hub: HubProcess, agent: WireAgent) -> None:
    text = hub.ask("/metrics").body.decode()
    assert "gpudeck_pool_waiting_gpus" in text
    assert "gpudeck_pool_wait_seconds_bucket" in text
    complaints = [line for line in checked(text) if not DIALECT.fullmatch(line)]
    assert not complaints
    broken = subprocess.run([required("promtool"), "check", "metrics"], text=True, check=False,
                            input=text + 'x{a="1} 1\n', capture_output=True, timeout=30)
    assert broken.returncode == 1, "the check itself can fail"


def test_the_page_of_the_docs(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE.read_text(), re.S)
    assert [name for name, _ in blocks] == ["prometheus.yml"] * 3 + ["rules.yml"]
    for at, (name, text) in enumerate(blocks):
        file = tmp_path / f"{at}-{name}"
        file.write_text(text.replace("/etc/prometheus/gpudeck.token", str(tmp_path / "token")))
        (tmp_path / "token").write_text("x")
        what = "rules" if name == "rules.yml" else "config"
        run = subprocess.run([required("promtool"), "check", what, str(file)], capture_output=True,
                             text=True, timeout=30, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
    names = set(re.findall(r"\b(gpudeck_[a-z_]+)", PAGE.read_text()))
    assert len(names) > 20


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    all_labels = {"Hostname": "n1", "UUID": "GPU-1", "gpu": "0", "job": "gpudeck"} | labels
    return {"series": name + "{" + ",".join(f'{key}="{value}"' for key, value in all_labels.items())
            + "}", "values": values}


IDLE, BUSY = "DCGM_FI_DEV_GPU_UTIL", "gpudeck_gpu_tasks"
# By samples of 15 s; `_` is none.
PASTS: dict[str, tuple[list[dict[str, str]], dict[str, list[str]]]] = {
    "a fresh Prometheus": ([series(IDLE, "0x600"), series(BUSY, "1x600")],
                           {"14s": [], "1h": [], "1h50m": [], "2h5m": ["GpuHeldIdle"]}),
    "a pod that has just come": (
        [series(IDLE, "90x500 _x500", pod="old"), series(IDLE, "_x500 3x500", pod="new"),
         series(BUSY, "1x500 _x500", pod="old"), series(BUSY, "_x500 1x500", pod="new")],
        {"2h10m": [], "3h": [], "4h": []}),
    "idle through two pods": (
        [series(IDLE, "0x400 _x400", pod="old"), series(IDLE, "_x400 0x400", pod="new"),
         series(BUSY, "1x400 _x400", pod="old"), series(BUSY, "_x400 1x400", pod="new")],
        {"1h": [], "2h10m": ["GpuHeldIdle"]}),
    "nobody on it for a while": (
        [series(IDLE, "0x800"), series(BUSY, "1x300 0x40 1x460")], {"2h10m": []}),
    "one lost board of seven instances": (
        [series("gpudeck_gpu_state", "1x40", state="lost"),
         *(series("gpudeck_gpu_state", "1x40", state="lost", mig_uuid=f"MIG-{at}")
           for at in range(7))], {"30s": [], "2m": ["GpuLost"]}),
}


@pytest.mark.parametrize("past", PASTS)
def test_the_rules_of_the_docs_are_true(tmp_path: Path, past: str) -> None:
    rules = re.search(r"```yaml\n# rules.yml\n(.*?)```", PAGE.read_text(), re.S)
    assert rules is not None
    (tmp_path / "rules.yml").write_text(rules[1])
    input_series, alerts_at = PASTS[past]
    for name in ("GpuLost", "GpuHeldIdle"):
        for at, alerts in alerts_at.items():
            labels = {"Hostname": "n1", "UUID": "GPU-1", "gpu": "0", "severity": "info"}
            if name == "GpuLost":
                labels |= {"severity": "critical", "job": "gpudeck", "state": "lost"}
            (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [{
                "interval": "15s", "input_series": input_series, "alert_rule_test": [{
                    "eval_time": at, "alertname": name, "exp_alerts": [
                        {"exp_labels": labels, "exp_annotations": annotations(rules[1], name)}
                    ] * (name in alerts)}]}]}))
            run = subprocess.run([required("promtool"), "test", "rules", "test.yml"], timeout=30,
                                 cwd=tmp_path, capture_output=True, text=True, check=False)
            assert run.returncode == 0, (at, run.stdout + run.stderr)


def annotations(rules: str, name: str) -> dict[str, str]:
    [rule] = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]
              if rule.get("alert") == name]
    return {key: text.replace("{{ $labels.Hostname }}", "n1").replace("{{ $labels.gpu }}", "0")
            for key, text in rule["annotations"].items()}


def make_token(file: Path, hub: HubProcess) -> None:
    """Make a token by the very lines of the docs."""
    lines = re.search(r"```\n(umask .*?)```", PAGE.read_text(), re.S)
    assert lines is not None
    script = lines[1].replace("gpudeck token", f"{sys.executable} -m dashboard token").replace(
        "DIR", str(hub.folder)).replace("/etc/prometheus/gpudeck.token", str(file))
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, timeout=30,
                   cwd=PAGE.parents[1])
    assert file.stat().st_mode & 0o777 == 0o600


def relabelling() -> dict[str, Any]:
    """Return the relabelling of the docs, by which NVIDIA's dashboard tells nodes apart."""
    [block] = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
               if "metric_relabel_configs" in text]
    [job] = yaml.safe_load(block)["scrape_configs"]
    return {"metric_relabel_configs": job["metric_relabel_configs"]}


@contextmanager
def a_prometheus(folder: Path, hub: HubProcess) -> Iterator[str]:
    program, port = required("prometheus"), free_port()
    make_token(folder / "token", hub)
    rules = re.search(r"```yaml\n# rules.yml\n(.*?)```", PAGE.read_text(), re.S)
    assert rules is not None
    (folder / "rules.yml").write_text(rules[1])
    (folder / "prometheus.yml").write_text(json.dumps({
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [{
            "job_name": "gpudeck", "scrape_interval": "1s", "scrape_timeout": "1s",
            "authorization": {"credentials_file": str(folder / "token")},
            "static_configs": [{"targets": [f"127.0.0.1:{hub.port}"]}]} | relabelling()]}))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
             "--web.enable-lifecycle"], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def ask(url: str, expression: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=30) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result
    except OSError:
        return []


# Of NVIDIA's own dashboard (Grafana 12239), with its variables filled in.
DASHBOARD = {
    'max(DCGM_FI_DEV_GPU_TEMP{Hostname=~".+", gpu=~".+"}) by (Hostname, gpu, uuid)': 2,
    'avg(DCGM_FI_DEV_GPU_TEMP{Hostname=~".+", gpu=~".+"})': 1,
    'max(DCGM_FI_DEV_POWER_USAGE{Hostname=~".+", gpu=~".+"}) by (Hostname, gpu, uuid)': 2,
    'sum(max(DCGM_FI_DEV_POWER_USAGE{Hostname=~".+", gpu=~".+"}) by (gpu))': 1,
    'max(DCGM_FI_DEV_SM_CLOCK{Hostname=~".+", gpu=~".+"} * 1000000) by (Hostname, UUID, gpu)': 2,
    'max(DCGM_FI_DEV_GPU_UTIL{Hostname=~".+", gpu=~".+"}) by (Hostname, gpu)': 2,
    'max(DCGM_FI_DEV_FB_USED{Hostname=~".+", gpu=~".+"}) by (Hostname, gpu)': 2,
    'rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{Hostname=~".+"}[1m])': 2,
}


def test_a_real_prometheus(tmp_path: Path, hub: HubProcess, agent: WireAgent) -> None:
    with a_prometheus(tmp_path, hub) as url:
        def goes_on() -> bool:
            agent.tick()
            time.sleep(0.2)
            return len(ask(url, "count_over_time(DCGM_FI_DEV_GPU_UTIL[1m]) > 1")) == 2

        wait_for(goes_on, why=(tmp_path / "log").read_text())
        assert ask(url, "up")[0]["value"][1] == "1"
        for expression, rows in DASHBOARD.items():
            assert len(ask(url, expression)) == rows, expression
        by_gpu = {row["metric"]["gpu"]: row["metric"] for row in ask(url, "DCGM_FI_DEV_GPU_TEMP")}
        assert {labels["UUID"] for labels in by_gpu.values()} == {gpu.uuid for gpu in agent.facts}
        assert {labels["Hostname"] for labels in by_gpu.values()} == {agent.caller.said.host}
        # The dashboard's only selector of nodes; the hub itself is one instance.
        assert {labels["instance"] for labels in by_gpu.values()} == {agent.caller.said.host}


BOARD = PAGE.parents[1] / "packaging/grafana/gpudeck.json"
# Without a row as long as all is well, or before an hour has passed.
EMPTY = {"Commands by state", "History on disk", "Xid errors",
         "Agents that are not up, or cannot read", "Pool: wait, 90th percentile",
         "Throttling"}


def the_boards_queries(url: str) -> None:
    """Fill in Grafana's variables; a query that Prometheus refuses raises."""
    panels = json.loads(BOARD.read_text())["panels"]
    results = {}
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"].replace("$node", ".*")
            query = urllib.parse.urlencode({"query": expression})
            with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=30) as answer:
                results[panel["title"], target["refId"]] = json.load(answer)["data"]["result"]
    assert {title for (title, _), rows in results.items() if not rows} <= EMPTY
    assert len(results) >= len(panels) > len(EMPTY)


@pytest.mark.soak
def test_the_boards_queries(tmp_path: Path, hub: HubProcess, agent: WireAgent) -> None:
    with a_prometheus(tmp_path, hub) as url:
        def goes_on() -> bool:
            agent.tick()
            time.sleep(0.2)
            return bool(ask(url, 'rate(process_cpu_seconds_total{job="gpudeck"}[5m])'))

        wait_for(goes_on, why=(tmp_path / "log").read_text())
        the_boards_queries(url)


@pytest.mark.soak
def test_the_board_asks_for_what_is_served(hub: HubProcess, agent: WireAgent) -> None:
    served = set(re.findall(r"^# TYPE (\w+)", hub.ask("/metrics").body.decode(), re.M))
    queried = {name for panel in json.loads(BOARD.read_text())["panels"]
               for target in panel["targets"] for name in re.findall(
                 r"\b((?:DCGM_FI|gpudeck|process)_\w+)", target["expr"])}
    assert {name.removesuffix("_bucket") for name in queried} - served <= {
        "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_POWER_VIOLATION",
        "gpudeck_commands", "gpudeck_history_bytes", "gpudeck_agent_reader_up"}


def test_of_one_node(tmp_path: Path) -> None:
    """The agent's own page says what its driver says, to loopback names, and nothing else."""
    hub, nvml, port = FakeHub(), FakeNvml(tmp_path / "nvml.txt", gpus=2), free_port()
    (tmp_path / "token").write_text(hub.token().text)
    url = f"http://127.0.0.1:{port}/metrics"

    def text(**headers: str) -> str:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: str = answer.read().decode()
            return body

    def answers() -> bool:
        try:
            return "DCGM_FI_DEV_GPU_TEMP" in text()
        except OSError:
            return False

    with an_agent("--hub", hub.url, "--data", str(tmp_path / "data"), "--metrics",
                  f"127.0.0.1:{port}", "--token-file", str(tmp_path / "token"), env=nvml.env()):
        wait_for(answers, why="a reading")
        page = text()
        assert set(samples(page, "DCGM_FI_DEV_GPU_TEMP")) == {"0", "1"}
        assert set(re.findall(r'UUID="([^"]+)"', page)) == {
            gpu.uuid for gpu in nvml.gpus}
        with pytest.raises(urllib.error.HTTPError) as error:
            text(Host="evil.example")
        assert error.value.code == 421
        error.value.close()
        assert not [line for line in checked(page) if not DIALECT.fullmatch(line)]
    hub.close()
