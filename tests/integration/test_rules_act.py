"""Rules that act, whole: a real hub, a real agent, real children; and a neighbour trains on.

The hub's holds are cut to a second, and the fleet's bound is that of a larger one; what they are
really is held by tests/unit/dashboard/automation/test_service.py and the soak test below."""

import json
import random
import resource
import secrets
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.actions import guard
from agent.backends import SIMULATED
from agent.journal.store import ActionJournal, ActionStore
from agent.link.identity import NodeIdentity, node_key
from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from agent.node import run_node
from agent.node_config import NodeConfig
from agent.readings import GpuReading, Reading, ReadingSource
from agent.runtime.wake import ThreadWakeSignal
from agent.tasks.boot_id import boot_id
from dashboard.alerts.core.rule import read
from dashboard.alerts.store import AlertsStore
from dashboard.state import HubState
from gpudeck.audit.chain import verify
from gpudeck.contract.wire import GpuFacts
from gpudeck.measures.metrics import COLUMN, WIDTH, Absence
from tests.demos import Demo
from tests.fakes.children import Child, Children, a_ceiling, is_alive
from tests.integration.hubs import Answer, HubProcess, wait_for
from tests.integration.visitors import Visitor, add_person, open_state, signed_in

GPU = GpuFacts("GPU-1", 0, "NVIDIA H100", mem_total_bytes=80e9)
DAYS_S = 86_400.0


class Hurried(HubProcess):
    """A hub that hurries; on one node, eight acts may be done in ten minutes."""

    constants: Mapping[str, object] = {
        "dashboard.alerts.core.rule.LADDER_FOR_S": 1,
        "dashboard.alerts.core.rule.END_AFTER_S": 0,
        "dashboard.automation.wiring.TICK_S": 0.2,
        "dashboard.notifications.wiring.TICK_S": 0.2,
        "gpudeck.contract.ladder.AGAIN_AFTER_S": 1.0,
        "dashboard.alerts.core.rule_tracker.WARM_AT_LEAST_S": 0.5,
        "dashboard.automation.brake_limits.FLEET_SHARE": 8.0,
    }


@dataclass(slots=True, eq=False)
class Sampled(Children):
    """Children that give samples as well, four a second; `sm` by pid, and idle without."""

    sm: dict[int, float] = field(default_factory=dict)
    is_mute: bool = False
    told_at: float = 0.0
    gpu: GpuFacts = GPU

    def latest(self) -> Reading | None:
        if self.is_mute or time.monotonic() - self.told_at < 0.25:
            return None
        self.told_at = time.monotonic()
        at, fresh = time.time(), self.fresh(1.0)
        assert fresh is not None
        values, absent = [0.0] * WIDTH, bytearray([Absence.UNKNOWN] * WIDTH)
        for name, value in (("mem_used_bytes", fresh.mem_used_bytes.get(self.gpu.uuid) or 0.0),
                            ("util_pct", max(self.sm.values(), default=0.0))):
            values[COLUMN[name]], absent[COLUMN[name]] = value, Absence.PRESENT
        listed = tuple(type(process)(process.pid, process.gpu_uuid, process.mem_used_bytes,
                                     self.sm.get(process.pid, 0.0), process.kind)
                       for process in fresh.processes)
        return Reading(at, 0.25, (GpuReading(self.gpu.uuid, "ok", tuple(values), bytes(absent)),),
                       (self.gpu,), listed)


@dataclass
class Bed:
    hub: HubProcess
    source: Sampled
    data: Path
    neighbour: Child
    rules: list[str] = field(default_factory=list)

    def hog(self, kind: str = "compute") -> Child:
        self.is_clear()
        child = self.source.start(gpu=self.source.gpu.uuid, kind=kind)
        wait_for(lambda: self.task(child), why="the hub sees the hog")
        return child

    def is_clear(self) -> None:
        """Remove the rules of other tests, and kill their children."""
        for rule_id in self.rules:
            assert self.ask("DELETE", f"rules/{rule_id}").status == 204
        self.rules.clear()
        for child in self.source.all:
            if child is not self.neighbour and child.is_alive():
                child.process.kill()
                child.process.wait(5)

    def task(self, child: Child) -> Any:
        return next((task for task in self.hub.get("/api/v1/tasks")["items"]
                     if task["id"] == child.task_id), None)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self.hub.ask(f"/api/v1/{path}", method, "api",
                            None if body is None else json.dumps(body).encode(),
                            Content_Type="application/json")

    def put(self, mode: str, **more: Any) -> str:
        """Put a rule that another admin has tried out for eight days."""
        rule = {"id": f"idle-{secrets.token_hex(3)}", "title": "Idle with memory held",
                "of": "task", "scope": "*", "signal": "sm_pct", "fire": "<= 1", "for": "1s",
                "where": ["mem_used_bytes >= 100MiB"], "mode": "dry_run", "cooldown": "0s",
                "min_coverage": 0.2, "max_gap": "10s",  # on a machine that is busy with others
                "ladder": [{"do": "tell"}, {"do": "tell"}, {"do": "end"}]} | more
        import dashboard.alerts.core.rule as grammar
        assert grammar.LADDER_FOR_S == 30, "it is the hub that hurries, not we"
        with open_state(self.hub) as state:
            state.store(AlertsStore).put_rule(read(rule), "ada", time.time() - 8 * DAYS_S)
        answer = self.ask("PUT", f"rules/{rule['id']}", rule)
        assert answer.status == 200, answer.body
        self.rules.append(str(rule["id"]))
        if mode != "dry_run":
            answer = self.mode(rule["id"], mode)
            assert answer.status == 200, answer.body
            assert answer.json["mode"] == mode
        return str(rule["id"])

    def mode(self, rule_id: Any, mode: str) -> Answer:
        expires = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * DAYS_S))
        return self.ask("POST", f"rules/{rule_id}/mode", {"mode": mode, "expires": expires})

    def alert(self, child: Child) -> Any:
        return next((alert for alert in self.hub.get("/api/v1/alerts")["items"]
                     if alert["target"] == child.task_id), None)

    def ladder(self, child: Child) -> dict[str, Any]:
        alert = self.alert(child)
        ladder: dict[str, Any] = (alert or {}).get("ladder") or {}
        return ladder

    def commands(self, child: Child) -> list[Any]:
        commands = self.hub.get(f"/api/v1/commands?task={child.task_id}")["items"]
        return sorted(commands, key=lambda command: command["id"])

    def ending(self, child: Child) -> Any:
        """Return the newest end; on a busy machine an earlier one may have been put off."""
        return next((command for command in reversed(self.commands(child))
                     if command["action"] == "end"), None)

    def node_id(self) -> str:
        return str(self.hub.get("/api/v1/nodes")["items"][0]["id"])

    def check(self) -> None:
        """Check what holds at the end of every test."""
        assert self.neighbour.is_alive()
        assert self.hub.get("/api/v1/brakes")["breaker"] is None
        assert "Traceback" not in self.hub.log.read_text()
        assert verify(ActionJournal(ActionStore(self.data / "acts.db")).audit.links()) is None


@pytest.fixture(name="bed", scope="module")
def a_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("rules")
    data = folder / "agent"
    data.mkdir(mode=0o700)
    a_ceiling(data, rules_may_act=True)
    source, stop = Sampled(), threading.Event()
    with pytest.MonkeyPatch.context() as patch, Hurried(
            folder / "hub", 0, "--signer-ends-per-node-hour", "100") as hub:
        patch.setattr(guard, "YOUNGEST_S", 0.0)
        token = hub.token()
        identity = NodeIdentity(node_key(data), token.hub, token)
        journal = OutboxFile(data / "journal.db")
        config = NodeConfig((hub.url,), lambda _: None, identity, "host",
                            SIMULATED, boot_id(), data,
                            ActionStore(data / "acts.db"), ceiling=data / "ceiling.toml")
        listed: ReadingSource = source
        thread = threading.Thread(target=run_node, args=(
            config, listed, Outbox(journal), stop, ThreadWakeSignal()))
        thread.start()
        try:
            neighbour = source.start()
            source.sm[neighbour.pid] = 80.0
            yield Bed(hub, source, data, neighbour)
        finally:
            stop.set()
            thread.join(timeout=5)
            journal.close()
            config.acts.close()
            source.close()


def test_a_dry_run_says_whom_it_would_have_hit_and_touches_nobody(bed: Bed) -> None:
    hog = bed.hog()
    rule = bed.put("dry_run")
    finished = wait_for(lambda: (ladder := bed.ladder(hog)).get("state") == "finished" and ladder,
                        why="it has come to its end")
    assert [step["do"] for step in finished["done"]] == ["tell", "tell", "end"]
    assert all(step["sentence"].startswith("dry run") for step in finished["done"])
    records = [record for record in bed.hub.get("/api/v1/audit?kind=ladder")["items"]
               if rule in str(record)]
    assert len(records) == 3
    assert bed.commands(hog) == []
    assert hog.is_alive()
    bed.check()


def test_the_idle_one_is_told_twice_and_ends_and_its_memory_is_back(bed: Bed) -> None:
    hog = bed.hog()
    rule = bed.put("auto")
    command = wait_for(lambda: (end := bed.ending(hog)) and end["state"] == "done" and end,
                       why="it is ended")
    assert hog.process.wait(1) == -signal.SIGTERM
    assert [command["action"] for command in bed.commands(hog) if command["state"] not in (
        "refused", "expired")] == ["notify", "notify", "end"]
    verified = command["verified"]
    assert (verified["exited"], verified["memory_returned"], verified["bystanders_alive"]) == (
        True, True, True)
    assert verified["mem_before_bytes"] == hog.mem_used_bytes
    assert (command["by"]["kind"], command["by"]["name"].startswith(rule)) == ("rule", True)
    assert "Idle with memory held" in command["reason"]
    wait_for(lambda: bed.alert(hog) is None, why="what is gone fires no more")
    assert any(entry["source"] == f"rule {rule}"
               for entry in bed.hub.get("/api/v1/brakes")["spent"])
    bed.check()


def test_a_silence_reaches_a_command_that_is_with_the_node(bed: Bed) -> None:
    hog = bed.hog()
    rule = bed.put("auto")
    wait_for(lambda: bed.ending(hog), why="it is ordered")
    bed.source.is_mute = True  # the node waits for its own two samples
    wait_for(lambda: "two samples" in str(bed.ending(hog)) or bed.ending(hog)["state"] == "done")
    silence = bed.ask("POST", "silences", {"until": time.time() + 600, "because": "demo day",
                                           "rule": rule}).json
    time.sleep(2.0)  # that is what it may take: nothing is signalled after
    bed.source.is_mute = False
    command = wait_for(lambda: (end := bed.ending(hog))["state"] == "refused" and end)
    assert "demo day" in command["refusal"]["sentence"]
    assert hog.is_alive()
    assert any("silenced" in why for why in bed.alert(hog)["holds"])
    assert bed.ladder(hog)["state"] != "stopped"
    assert bed.ask("DELETE", f"silences/{silence['id']}").status == 204
    bed.check()


def test_the_node_looks_for_itself_and_what_works_again_lives(bed: Bed) -> None:
    hog = bed.hog()
    bed.put("auto")
    wait_for(lambda: bed.ending(hog), why="it is ordered")
    bed.source.sm[hog.pid] = float(random.randint(30, 90))
    command = wait_for(lambda: (end := bed.ending(hog))["state"] in ("refused", "done") and end)
    assert command["state"] == "refused", command
    assert command["refusal"]["code"] in ("condition", "hold")
    assert hog.is_alive()
    bed.check()


def person(bed: Bed, name: str, role: str = "operator") -> Visitor:
    add_person(bed.hub, name, role, ["*"])
    return signed_in(bed.hub, name)


def test_confirm_is_by_a_person_with_a_preview_of_exactly_that(bed: Bed) -> None:
    hog = bed.hog()
    bed.put("confirm")
    state = wait_for(lambda: (ladder := bed.ladder(hog)).get("confirm") and ladder, why="it waits")
    assert (state["next"], state["task_ids"]) == ("end", [hog.task_id])
    assert bed.ending(hog) is None
    ops, path = person(bed, "ops"), f"/api/v1/alerts/{bed.alert(hog)['id']}/confirm"
    preview = ops.send("/api/v1/previews", {"action": "end", "targets": [bed.neighbour.task_id]})
    wrong = ops.send(path, {"preview": preview.json["id"], "reason": "why"})
    assert wrong.status == 409, wrong.body
    preview = ops.send("/api/v1/previews", {"action": "end", "targets": [hog.task_id]}).json
    assert person(bed, "other").send(path, {"preview": preview["id"]}).status == 409
    assert hog.is_alive()
    answer = ops.send(path, {"preview": preview["id"], "reason": "I asked him"})
    assert answer.status == 202, answer.body
    assert answer.json["by"]["name"] == "ops"
    wait_for(lambda: not hog.is_alive(), why="it ends")
    assert ops.send(path, {"preview": preview["id"]}).status in (404, 409)
    assert "I asked him" in bed.ending(hog)["reason"]
    bed.check()


def test_on_a_node_in_maintenance_nothing_acts_and_people_click_twice(bed: Bed) -> None:
    hog = bed.hog()
    ops, path = person(bed, "crew"), f"/api/v1/nodes/{bed.node_id()}/maintenance"
    because = f"new fans {secrets.token_hex(2)}"
    began = ops.send(path, {"because": because, "until": time.time() + 600}, "PUT")
    assert began.status == 200, began.body
    bed.put("auto")
    wait_for(lambda: any(because in why for why in (bed.alert(hog) or {}).get("holds", ())))
    wait_for(lambda: len(bed.ladder(hog).get("done", ())) == 2, why="telling is not acting")
    preview = ops.send("/api/v1/previews", {"action": "end", "targets": [hog.task_id]}).json
    assert preview["needs"]["maintenance"]
    order = {"preview": preview["id"], "reason": "it is mine"}
    once = ops.send("/api/v1/commands", order)
    assert (once.status, once.json["type"]) == (409, "urn:gpudeck:problem:maintenance")
    assert hog.is_alive()
    assert ops.send("/api/v1/commands", order | {"despite_maintenance": True}).status == 202
    wait_for(lambda: not hog.is_alive(), why="the second click counts")
    assert [entry["because"] for entry in bed.hub.get("/api/v1/maintenance")["items"]] == [because]
    assert ops.send(path, {}, "DELETE").status == 204
    assert ops.send(path, {}, "DELETE").status == 404
    bed.check()


def test_no_rule_acts_that_was_not_tried_out(bed: Bed) -> None:
    bed.is_clear()
    rule = {"id": "eager", "title": "Eager", "of": "task", "scope": "*", "signal": "sm_pct",
            "fire": "<= 1", "for": "30s", "ladder": [{"do": "tell"}], "mode": "auto",
            "expires": "2026-12-31"}
    new = bed.ask("PUT", "rules/eager", rule)
    assert (new.status, "starts in observe or dry_run" in new.body.decode()) == (409, True)
    assert bed.ask("PUT", "rules/eager", rule | {"mode": "dry_run"}).status == 200
    early = bed.mode("eager", "auto")
    assert (early.status, "another admin" in early.body.decode()) == (409, True)
    assert bed.mode("eager", "confirm").status == 200
    edited = bed.ask("PUT", "rules/eager", rule | {"mode": "confirm", "fire": "<= 2"})
    assert (edited.status, edited.json["mode"]) == (200, "dry_run")
    assert person(bed, "low").send("/api/v1/rules/eager/mode", {"mode": "observe"}).status == 200
    assert person(bed, "lower").send("/api/v1/rules/eager/mode", {"mode": "dry_run"}).status == 403
    assert bed.ask("DELETE", "rules/eager").status == 204


def test_a_reset_has_a_reason_and_something_to_reset(bed: Bed) -> None:
    nothing = bed.ask("POST", "brakes", {"reason": "all is well"})
    assert (nothing.status, "nothing to reset" in nothing.body.decode()) == (409, True)
    assert bed.ask("POST", "brakes", {"reason": " "}).status == 409
    state = bed.hub.get("/api/v1/brakes")
    assert [brake["name"] for brake in state["brakes"]] == [
        "breaker", "storm", "node", "cause", "fleet", "pace"]


@contextmanager
def full_disk(hub: HubProcess) -> Iterator[None]:
    """Stand in for a full disk by RLIMIT_FSIZE: every write past the first byte of a file fails."""
    usual = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (1, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_what_cannot_be_recorded_is_not_done_and_opens_the_breaker(bed: Bed, is_long: bool) -> None:
    """Stay open once there is room again, and after a restart: until an admin has looked."""
    hog = bed.hog()
    bed.put("auto", ladder=[{"do": "tell"}, {"do": "end", "after": "4s"}])
    wait_for(lambda: bed.ladder(hog).get("next") == "end", why="it was told, and is to end")
    with full_disk(bed.hub):
        tripped = wait_for(lambda: bed.hub.get("/api/v1/brakes")["breaker"], why="it opens")
        assert "recorded" in tripped["sentence"] or "disk" in tripped["sentence"]
        holds = wait_for(lambda: [why for why in bed.alert(hog)["holds"] if "breaker" in why])
        assert "the breaker is open" in holds[0]
        assert bed.ask("POST", "brakes", {"reason": "never mind"}).status == 503
        time.sleep(1.0)
        assert bed.ending(hog) is None or bed.ending(hog)["state"] in ("refused", "requested")
        assert hog.is_alive()
        wait_for(lambda: firing(bed, "brakes-on") and firing(bed, "audit-failing"),
                 why="the hub's own rules say so")
    wait_for(lambda: any(record["action"] == "trip" for record in bed.hub.get(
        "/api/v1/audit?kind=brake")["items"]), why="it is recorded once there is room")
    wait_for(lambda: not firing(bed, "audit-failing"))
    if is_long:
        bed.hub.kill()
        bed.hub.start()
        wait_for(lambda: bed.hub.get("/api/v1/nodes")["items"][0]["state"] == "live",
                 why="the agent is back")
        wait_for(lambda: bed.alert(hog), why="it fires again")
    time.sleep(2.0)
    assert hog.is_alive()
    assert bed.hub.get("/api/v1/brakes")["breaker"]["sentence"] == tripped["sentence"]
    assert bed.ask("POST", "brakes", {"reason": "there is room again"}).status == 200
    wait_for(lambda: not hog.is_alive(), why="the control: with the breaker closed it ends")
    bed.check()


def firing(bed: Bed, rule: str) -> bool:
    return any(alert["rule"] == rule for alert in bed.hub.get("/api/v1/alerts")["items"])


@pytest.mark.soak
def test_the_demos_hog_ends_in_real_time_and_the_others_go_on(tmp_path: Path) -> None:
    """Keep all holds as they are: warm-up, 30 s of `for`, 60 s before an end; one node, so that
    one act is all that there may be."""
    demo = Demo(tmp_path / "demo", "--nodes", "1", "--faults", "off")
    try:
        rule = {"id": "hog", "title": "Idle with memory held", "of": "job", "scope": "*",
                "signal": "max(busy_pct, 20s)", "fire": "<= 1", "for": "30s",
                "where": ["mem_used_bytes >= 1GiB"], "mode": "dry_run",
                "ladder": [{"do": "tell"}, {"do": "tell", "after": "5s"},
                           {"do": "end", "after": "60s"}]}
        state = HubState.open(demo.data / "hub")
        state.store(AlertsStore).put_rule(read(rule), "ada", time.time() - 8 * DAYS_S)
        state.close()
        expires = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 30 * DAYS_S))
        tell(demo, "PUT", "rules/hog", rule)
        tell(demo, "POST", "rules/hog/mode", {"mode": "auto", "expires": expires})
        before = {task["id"]: task["pid"] for task in demo.info()["tasks"]}
        [end] = wait_for(lambda: [row for row in demo.ask("commands")
                                  if row["action"] == "end" and row["state"] == "done"], 300)
        assert end["verified"]["memory_returned"]
        assert end["verified"]["bystanders_alive"] is not False
        notices = [command for command in demo.ask("commands") if command["action"] == "notify"
                   and command["task_id"] == end["task_id"]]
        assert len(notices) == 2
        ended_pids = {before[task_id] for task_id in end["task_ids"]}
        assert not any(is_alive(pid) for pid in ended_pids)
        assert all(is_alive(pid) for pid in set(before.values()) - ended_pids)
        assert len([row for row in demo.ask("commands") if row["action"] == "end"]) == 1
    finally:
        demo.end()


def tell(demo: Demo, method: str, path: str, body: Any) -> None:
    request = urllib.request.Request(
        f"{demo.url}/api/v1/{path}", json.dumps(body).encode(), method=method, headers={
            "Authorization": f"Bearer {demo.info()['token']}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
