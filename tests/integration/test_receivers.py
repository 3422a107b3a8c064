"""Receivers with forms of their own, from a firing alert to its end: a real Alertmanager, and what
the others are sent, by the limits and the fields that they document."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.webhook import HttpSink
from tests.integration.hubs import HubProcess, wait_for
from tests.integration.test_alerts import ask, telling
from tests.integration.test_notifications import (
    QUICK,
    burning,
    calm,
    receiver,
    receiver_view,
    remove,
)
from tests.machine import required
from tests.ports import free_port


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("receivers") / "data", 0, *QUICK) as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    program, port = required("prometheus-alertmanager"), free_port()
    (tmp_path / "am.yml").write_text(
        "route: {receiver: none, group_by: [alertname]}\nreceivers: [{name: none}]\n")
    with (tmp_path / "am.log").open("w") as log:
        process = subprocess.Popen(
            [program, f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am",
             f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="], stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: is_ready(url), why="Alertmanager")
        yield url
    finally:
        process.terminate()
        process.wait(10)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def alerts_at(url: str) -> list[Any]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5) as answer:
        return list(json.load(answer))


def test_a_real_alertmanager_has_each_alert_until_it_is_over(
    hub: HubProcess, alertmanager: str
) -> None:
    ops = receiver(hub, kind="alertmanager", to=alertmanager)
    assert ask(hub, "POST", f"receivers/{ops['id']}/test").json["is_taken"] is True
    teller, rule = burning(hub)

    def active() -> list[Any]:
        return [alert for alert in alerts_at(alertmanager) if alert["labels"]["alertname"] == rule]

    firing = telling(teller, lambda: len(active()) == 2 and active(), "both are there")
    assert {alert["labels"]["target"] for alert in firing} == {gpu.uuid for gpu in teller.facts}
    assert {alert["labels"]["severity"] for alert in firing} == {"warning"}
    assert firing[0]["annotations"]["runbook"] == "Look at the fans."
    with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts/groups", timeout=5) as answer:
        groups = [group for group in json.load(answer) if group["labels"] == {"alertname": rule}]
    assert [len(group["alerts"]) for group in groups] == [2], "one notification for both"
    assert firing[0]["generatorURL"].startswith(f"{hub.url}/gpu/")
    calm(teller)
    telling(teller, lambda: not active(), "resolved")  # ended ones are no longer among the active
    remove(hub, ops)


@pytest.mark.parametrize(("kind", "path", "token"), [
    ("pagerduty", "/v2/enqueue", "R0"), ("jsm", "/v2/alerts", "K"), ("teams", "/flow?sig=x", ""),
    ("discord", "/api/webhooks/1/x", ""), ("ntfy", "/gpus", "")])
def test_it_is_sent_and_resolved(hub: HubProcess, kind: str, path: str, token: str) -> None:
    with HttpSink() as sink:
        teller, rule = burning(hub)
        ops = receiver(hub, kind=kind, to=f"{sink.url}{path}", token=token, rules=[rule])
        telling(teller, lambda: sink.got, "firing")
        calm(teller)
        telling(teller, lambda: len(sink.got) > 1, "resolved")
        fired, resolved = sink.got
        host = teller.caller.said.host
        assert "Hot" in json.dumps(fired)
        assert host in json.dumps(fired)
        match kind:
            case "pagerduty":
                assert (fired["routing_key"], fired["event_action"], resolved["event_action"]) == (
                    "R0", "trigger", "resolve")
                assert fired["dedup_key"] == resolved["dedup_key"]
                assert fired["payload"]["severity"] == "warning"
            case "jsm":
                assert sink.headers[-1]["Authorization"] == "GenieKey K"
                assert sink.paths[-1] == (
                    f"/v2/alerts/{fired['alias']}/close?identifierType=alias")
            case "teams":
                assert fired["attachments"][0]["content"]["type"] == "AdaptiveCard"
            case "discord":
                assert fired["allowed_mentions"] == {"parse": []}
            case _:
                assert (sink.paths[-1], fired["topic"], fired["priority"]) == ("/", "gpus", 4)
        assert ask(hub, "POST", f"receivers/{ops['id']}/test").json["is_taken"] is True
        remove(hub, ops)


def test_a_refusal_is_said_once_and_not_repeated(hub: HubProcess) -> None:
    with HttpSink() as sink:
        sink.status = 403
        teller, rule = burning(hub)
        ops = receiver(hub, to=sink.url, rules=[rule])
        telling(teller, lambda: sink.got, "sent")
        parked = wait_for(lambda: [notice for notice in hub.get("/api/v1/notices")["items"]
                                   if notice["parked_at"] is not None], why="it is put aside")
        assert "403" in parked[0]["error"]
        time.sleep(7)  # longer than the first pause before another attempt
        assert len(sink.got) == 1
        assert "403" in receiver_view(hub, ops)["error"]
        calm(teller)
        remove(hub, ops)


@pytest.mark.parametrize(("kind", "to", "says"), [
    ("pagerduty", "https://events.pagerduty.com/v2/enqueue", "routing key"),
    ("jsm", "https://api.atlassian.com/jsm/ops/integration/v2/alerts", "integration's key"),
    ("ntfy", "https://ntfy.example.org/", "topic"), ("teams", "ftp://x", "https://")])
def test_what_cannot_work_is_refused(hub: HubProcess, kind: str, to: str, says: str) -> None:
    answer = ask(hub, "POST", "receivers", {"name": "x", "kind": kind, "to": to})
    assert answer.status == 409
    assert says in answer.json["detail"]
