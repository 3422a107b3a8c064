"""A node's key is stolen, and a hostile program uses it for as long as it can, with 50 honest
nodes: what it can do is the table "With a node's key" in docs/security.md, and nothing else.

Short: a minute. Soak: ten, with quarantines of ten seconds in place of up to ten minutes, so that
it gets to try each thing it knows. Both measure the same fleet without the thief first, in the same
run, and the long one a twin at the same time that no thief visits: what a hub grows by itself, as
when a full hour of history is merged, is not the thief's.
"""

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolPlan, PoolReport, ReportedLease
from gpudeck.contract.wire import MAX_GPUS, GpuFacts, Inventory, decode_from_hub
from gpudeck.pool.core.claims import Claim
from tests.integration.acting import ActingAgent, ordered, previewed, settled, several
from tests.integration.hubs import (
    REPOSITORY,
    Caller,
    HubProcess,
    StartedHub,
    raw_agent,
    wait_for,
)
from tests.integration.visitors import Visitor, add_person, signed_in
from tests.swarm import Swarm, spread
from tests.thief import NAME, PER_S, Prey, Thief, arguments

NODES = 50
MEGABYTE = 1_000_000
GROWN_MB, PEAK_MB, STORED_MB = 50.0, 100.0, 5.0
# A question waits so long for what the hub itself computes, or so many times as without the thief:
# where others want the machine too, more is to be done in one go. How late honest nodes are heard
# and people answered is by the clock, and held on a quiet machine.
LAG_MS = 50.0
LATE_MS, WORSE = 100.0, 3.0
AFTER_S = 12.0
QUIET_MS = 10.0  # how late `cat` answers where nobody else wants the machine
LOG_BYTES = 1_000_000
QUARANTINE = "dashboard.fleet.quarantine.QUARANTINE_"
SHORT_QUARANTINES = {f"{QUARANTINE}S": 10.0, f"{QUARANTINE}MOST_S": 10.0}
PAGES = ("/", "/tasks", "/alerts", "/api/v1/nodes", "/api/v1/alerts", "/api/v1/events")
ACTS = 3


@dataclass
class Span:
    """Measurements of the hub for a while. `answered_ms`: how soon it answered a request; `lag_ms`:
    how much it computed meanwhile; `machine_ms`: how soon `cat` answers at the same time."""

    answered_ms: list[float] = field(default_factory=list)
    lag_ms: list[float] = field(default_factory=list)
    machine_ms: list[float] = field(default_factory=list)
    pages_s: list[float] = field(default_factory=list)
    own_bytes: list[int] = field(default_factory=list)  # once a second
    state_bytes: list[int] = field(default_factory=list)


class Watch:
    """Watcher that asks the hub ten times a second whether it lives, and opens pages."""

    def __init__(self, hub: HubProcess, visitor: Visitor) -> None:
        self._hub, self._visitor = hub, visitor
        self._span = Span()
        self._is_over = threading.Event()
        self._trouble: list[str] = []
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     bufsize=0)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        self._cat.kill()
        self._cat.communicate()

    def take(self) -> Span:
        assert self._trouble == []
        span, self._span = self._span, Span()
        return span

    def _go_on(self) -> None:
        turn = 0
        while not self._is_over.wait(0.1):
            span, turn = self._span, turn + 1
            try:
                span.machine_ms.append(self._cat_ms())
                began, spent_ms = time.monotonic(), _loop_ms(self._hub)
                assert self._hub.ask("/healthz").status == 200
                span.answered_ms.append(1e3 * (time.monotonic() - began))
                span.lag_ms.append(_loop_ms(self._hub) - spent_ms)
                if turn % 10 == 0:
                    began, path = time.monotonic(), PAGES[turn // 10 % len(PAGES)]
                    answer = self._visitor.ask(path)
                    span.pages_s.append(time.monotonic() - began)
                    if answer.status != 200:
                        self._trouble.append(f"{path} {answer.status}")
                    span.own_bytes.append(_own_bytes(self._hub))
                    span.state_bytes.append(_state_bytes(self._hub))
            except OSError as error:
                self._trouble.append(f"{error}")


    def _cat_ms(self) -> float:
        assert self._cat.stdin is not None
        assert self._cat.stdout is not None
        began = time.monotonic()
        self._cat.stdin.write(b"x")
        assert self._cat.stdout.read(1) == b"x"
        return 1e3 * (time.monotonic() - began)


def _loop_ms(hub: HubProcess) -> float:
    """CPU milliseconds of the one thread of the hub's loop."""
    pid = hub.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


def _own_bytes(hub: HubProcess) -> int:
    """Memory without files and libraries, whose shared part changes with other programs."""
    text = Path(f"/proc/{hub.process.pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1_024 for line in text.splitlines()
                if line.startswith("Anonymous:"))


class Honest(ActingAgent):
    """Honest node with tasks of alice; it goes on by itself until it is closed."""

    def __init__(self, hub: HubProcess) -> None:
        super().__init__("honest", gpus=2)
        self.plans: list[PoolPlan] = []
        self.connect(hub)
        self.show(several(4 + ACTS, boot="boot-honest"))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while not self._is_over.wait(1.0):
            self.tick()
            self.beat()

    def _on_message(self, data: bytes) -> None:
        message = decode_from_hub(data)
        if isinstance(message, PoolPlan):
            self.plans.append(message)
        else:
            super()._on_message(data)

    def gives_out_gpus(self, ops: Visitor) -> None:
        """Report one GPU as leased and preemptible, and a claim that waits for both."""
        policy = ops.send("/api/v1/pool/policy", {"is_preemptive": True, "least_run_s": 0}, "PUT")
        assert policy.status == 200, policy.body
        now = time.time()
        leased, waits = (
            Claim(id=name, owner="alice", gpus=gpus, submitted_at=now, is_preemptible=True)
            for name, gpus in (("held", 1), ("waits", 2)))
        self.say(PoolReport(
            tuple(OfferedGpu(gpu.uuid, gpu.name, gpu.index) for gpu in self.facts),
            (NodeClaim(waits, True),),
            (ReportedLease(leased, (self.facts[0].uuid,), "active", now, now + 9e4, now,
                           is_run=True),)))
        wait_for(lambda: self.plans, why="its plan")

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(10)
        super().close()


@contextmanager
def a_thief(hub: HubProcess, seconds: float, prey: Prey, output: Path
            ) -> Iterator["subprocess.Popen[bytes]"]:
    with output.open("wb") as out:
        process = subprocess.Popen(arguments(hub.port, seconds, prey), cwd=REPOSITORY, stdout=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@contextmanager
def _living(hub: HubProcess) -> Iterator[HubProcess]:
    with hub:
        yield hub
        assert hub.process.poll() is None, "the hub died"
        assert "Traceback" not in hub.log.read_text()


def test_a_minute_of_new_inventories_in_a_third_of_it(tmp_path: Path) -> None:
    """A node sends as many as it may, of 256 new GPUs each: 317,440 of them once took 2.9 GB, and
    were there again after a restart."""
    many, within_s = int(60 * PER_S), 20.0
    at_once = {f"{QUARANTINE}S": 0.2, f"{QUARANTINE}MOST_S": 0.2}
    with _living(HubProcess(tmp_path / "hub", 0, "--agent-messages-per-s", f"{3 * PER_S:.0f}",
                            constants=at_once)) as hub:
        add_person(hub, "ops", "admin")
        ops = signed_in(hub, "ops")
        raw_agent(hub, NAME).close()
        thief = Thief(hub.port, Prey("", "host", "boot-1", "", "alice"))
        with Watch(hub, ops) as watch:
            _warm_up(hub, ops)
            time.sleep(2 * len(PAGES))  # the watch has opened each
            before = _own_bytes(hub)
            watch.take()
            sent_count = _invent(thief, many, within_s)
            span = watch.take()
        refusal = hub.get(f"/api/v1/nodes/{Caller(NAME).node_id}")["refused"]
        lag = spread(span.lag_ms)
        grown = (max(*span.own_bytes, _own_bytes(hub)) - before) / MEGABYTE
        slots = len(hub.get("/api/v1/gpus?limit=1000")["items"])
        print(json.dumps({"sent": sent_count, "grown_mb": grown, "lag_ms": lag, "slots": slots,
                          "refused": refusal, "said": thief.refusals}))
        assert sent_count >= many / 2, "a busy machine does not take them all in time"
        assert grown <= GROWN_MB
        assert lag["p99"] < LAG_MS
        assert slots <= MAX_GPUS
        # Its quarantine is short here: it may just have ended.
        assert refusal is None or "it sent more than 1,024 new GPUs" in refusal["why"]
        assert thief.refusals["this node sent more new GPUs than allowed"]
        assert "agent_quarantined" in hub.log.read_text()


def _invent(thief: Thief, many: int, within_s: float) -> int:
    """Send inventories of invented GPUs and return how many; when refused, connect again as soon as
    it may."""
    began, sent_count = time.monotonic(), 0
    while sent_count < many and time.monotonic() < began + 3 * within_s:
        if thief.raw is None and not thief.connect():
            time.sleep(0.02)
            continue
        sent_count += 1
        thief.send(Inventory(thief.generation + 1 + sent_count, tuple(
            GpuFacts(f"U{sent_count}-{at}", at, f"m{sent_count}") for at in range(MAX_GPUS))))
        thief.receive(max(0.001, began + sent_count * within_s / many - time.monotonic()))
    thief.disconnect()
    return sent_count


def test_a_minute_of_a_stolen_key(tmp_path: Path) -> None:
    with _living(StartedHub(tmp_path / "hub", 0, "--quota-end-after-s", "2", "--pool", "on")
                 ) as hub:
        # One stall of the machine is more than the hundredth part of a minute.
        _holds(hub, tmp_path, 12.0, 60.0, share="p95")


@pytest.mark.soak
def test_ten_minutes_of_a_stolen_key(tmp_path: Path) -> None:
    with (_living(HubProcess(tmp_path / "hub", 0, "--quota-end-after-s", "2", "--pool", "on",
                             constants=SHORT_QUARANTINES)) as hub,
          _living(HubProcess(tmp_path / "twin", 0)) as twin):
        # The hub holds five minutes of what honest nodes say: they are not the thief's.
        did = _holds(hub, tmp_path, 330.0, 600.0, twin)
    assert did["untried"] == []


@contextmanager
def _a_fleet(hub: HubProcess, ops: Visitor) -> Iterator[tuple[Swarm, Watch]]:
    with Swarm(hub.port, hub, hub.api_token) as swarm, Watch(hub, ops) as watch:
        swarm.grow(NODES)
        _warm_up(hub, ops)
        swarm.tap()
        yield swarm, watch


def _twin(hub: HubProcess) -> AbstractContextManager[tuple[Swarm, Watch]]:
    add_person(hub, "ops", "admin")
    return _a_fleet(hub, signed_in(hub, "ops"))


def _prey(honest: Honest) -> Prey:
    return Prey(honest.node_id, honest.caller.said.host, "boot-1", next(iter(honest._tasks)),
                "alice", ("held", "waits"), tuple(gpu.uuid for gpu in honest.facts))


def _is_as_fast(with_it: dict[str, float], without: Sequence[dict[str, float]], share: str) -> bool:
    return with_it[share] <= max(LATE_MS, WORSE * max(calm[share] for calm in without))


def _holds(hub: HubProcess, folder: Path, before_s: float, stolen_s: float,
           twin: HubProcess | None = None, share: str = "p99") -> dict[str, Any]:
    add_person(hub, "ops", "admin")
    ops = signed_in(hub, "ops")
    raw_agent(hub, NAME).close()  # it was a node like any other
    honest = Honest(hub)
    tasks = list(honest._tasks)
    wait_for(lambda: hub.ask(f"/api/v1/tasks/{tasks[-1]}").status == 200, why="its tasks")
    answer = ops.send("/api/v1/quotas/alice", {"subject": "user:alice", "gpus": 2, "mode": "act"},
                      "PUT")
    assert answer.status in (200, 201), answer.body
    honest.gives_out_gpus(ops)
    with ExitStack() as stack:
        watches = [stack.enter_context(_twin(twin))[1]] if twin else []
        swarm, watch = stack.enter_context(_a_fleet(hub, ops))
        for other in (watch, *watches):
            other.take()
        time.sleep(before_s)
        calm, calm_late = watch.take(), swarm.late()
        calm_twin = [other.take() for other in watches]
        output = folder / "thief.json"
        with a_thief(hub, stolen_s, _prey(honest), output) as process:
            acted = [_act(hub, honest, task, stolen_s / (ACTS + 1)) for task in tasks[-ACTS:]]
            refusal = _refusal_seen(hub, process)
            assert process.wait(stolen_s + 60) == 0
        stolen, late = watch.take(), swarm.late()
        twins = [(was, other.take()) for was, other in zip(calm_twin, watches, strict=True)]
        time.sleep(AFTER_S)
        after, after_late = watch.take(), swarm.late()
        _nobody_else_noticed(swarm, hub)
        _its_pool_is_its_own(hub, honest)
    did: dict[str, Any] = json.loads(output.read_text())
    # One run rose by 38 MB for some minutes: what counts is what is there at the end.
    by_itself = [(_grown(was, now), _risen(was.state_bytes, now.state_bytes))
                 for was, now in twins]
    own_mb, own_stored_mb = map(max, zip((0.0, 0.0), *by_itself, strict=True))
    grown, peak = _grown(calm, stolen) - own_mb, _risen(calm.own_bytes, stolen.own_bytes)
    stored_mb = _risen(calm.state_bytes, stolen.state_bytes) - own_stored_mb
    # Calm before and after: what else the machine does then changes within minutes.
    clocks = {"late": (late, (calm_late, after_late)),
              "answered": (spread(stolen.answered_ms),
                           (spread(calm.answered_ms), spread(after.answered_ms)))}
    lag, calm_lag = spread(stolen.lag_ms), spread(calm.lag_ms)
    machine = spread(stolen.machine_ms + calm.machine_ms + after.machine_ms)
    print(json.dumps({"thief": did, "grown_mb": grown, "twin_mb": by_itself, "peak_mb": peak,
                      "stored_mb": stored_mb, "late_ms": [calm_late, late],
                      "lag_ms": [calm_lag, lag], "machine_ms": machine,
                      "own_mb": [size // MEGABYTE for size in calm.own_bytes + stolen.own_bytes],
                      "answered_ms": clocks["answered"], "refused": refusal,
                      "slowest_page_s": [max(calm.pages_s), max(stolen.pages_s)]}, indent=1))
    assert [grown <= GROWN_MB, peak <= PEAK_MB, stored_mb <= STORED_MB] == [True] * 3
    assert lag["p99"] <= max(LAG_MS, WORSE * calm_lag["p99"])
    if machine["p99"] <= QUIET_MS:  # else the clock tells of others
        assert [name for name, spreads in clocks.items() if not _is_as_fast(*spreads, share)] == []
    assert "it sent more than" in refusal["why"]
    assert "agent_quarantined" in hub.log.read_text()
    assert hub.log.stat().st_size < LOG_BYTES
    assert any("more" in reason for reason in did["refused"]), did["refused"]
    _only_what_was_ordered(hub, honest, acted)
    return did


def _grown(before: Span, after: Span) -> float:
    """Growth in MB from the last minute of one span to that of the other."""
    at_the_end = [statistics.median(span.own_bytes[-60:]) for span in (before, after)]
    return (at_the_end[1] - at_the_end[0]) / MEGABYTE


def _risen(before: list[int], after: list[int]) -> float:
    """Growth of the highest value, in MB."""
    return (max(after) - max(before)) / MEGABYTE


def _warm_up(hub: HubProcess, ops: Visitor) -> None:
    """Let the hub load what it loads once, at the first request, so that no one causes it later."""
    for path in (*PAGES, "/metrics", "/api/v1/usage?start=1h", "/api/v1/totals?at=1m"):
        ops.ask(path)
    time.sleep(8.0)


def _act(hub: HubProcess, honest: ActingAgent, task: str, after_s: float) -> str:
    """Preview, order and finish an action, though the thief claims all it likes."""
    time.sleep(after_s)
    ops = signed_in(hub, "ops")  # a password is good for five minutes
    [command] = ordered(ops, previewed(ops, f"{honest.node_id}/{task}"))["items"]
    settled(ops, command["id"], within_s=60.0)
    return str(command["id"])


def _refusal_seen(hub: HubProcess, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Return the refusal of the thief's node that the API shows meanwhile."""
    def look() -> Any:
        assert process.poll() is None, "it was never refused"
        return hub.get(f"/api/v1/nodes/{Caller(NAME).node_id}")["refused"]

    refusal: dict[str, Any] = wait_for(look, why="its refusal")
    assert refusal["until"] > time.time() - 1
    return refusal


def _nobody_else_noticed(swarm: Swarm, hub: HubProcess) -> None:
    """Check the honest nodes: the swarm ends if one is cut off, and all messages are on disk."""
    sent_seqs = swarm.seqs()

    def acked() -> bool:
        nodes = {node["frames"]["stream"]: node["frames"]
                 for node in hub.get("/api/v1/nodes?limit=1000")["items"]}
        return all(nodes[stream]["acked_seq"] >= seq and nodes[stream]["missing"] == 0
                   for stream, seq in sent_seqs.items())

    wait_for(acked, why="what the honest nodes said")


def _state_bytes(hub: HubProcess) -> int:
    return sum(file.stat().st_size for file in hub.folder.glob("state.db*"))


def _its_pool_is_its_own(hub: HubProcess, honest: Honest) -> None:
    """Check that no message of the thief leased, ended, took back or delayed anything there."""
    assert [plan for plan in honest.plans if (
        plan.offers, plan.give_back, plan.preempt, plan.extend, plan.withdrawn) != (
        (), {}, {}, {}, {})] == []
    standings = [standing for plan in honest.plans for standing in plan.standings]
    assert {standing.claim_id for standing in standings} == {"waits"}
    assert not any(standing.never for standing in standings)
    leases = [lease for lease in hub.get("/api/v1/leases?limit=1000")["items"]
              if lease["node"] == honest.node_id]
    assert [(lease["id"], lease["owner"]) for lease in leases] == [("held", "alice")]


def _only_what_was_ordered(hub: HubProcess, honest: ActingAgent, acted: list[str]) -> None:
    """Check that no rule and no quota ended an honest node's task because of the thief."""
    thief = Caller(NAME).node_id
    commands = [command for command in hub.get("/api/v1/commands?limit=1000")["items"]
                if command["node"] != thief]
    assert sorted(command["id"] for command in commands) == sorted(acted)
    assert sorted(honest.executed) == sorted(acted)
