"""Faults that are caused at once, each at its own place, and the notifications of them."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboard.alerts.active_rules import shipped_rules
from tests.fakes.children import Children
from tests.fakes.webhook import HttpSink
from tests.faults.matrix.faults import ON, PACE_S, Fault, Place
from tests.faults.matrix.hub_faults import WholeHub
from tests.faults.matrix.machines import GPUS, DriverNode, SimulatedNodes
from tests.faults.test_agent_disk import small_disk
from tests.integration.hubs import HubProcess, wait_for

# A fault without a notification by then counts as one without any.
GIVE_UP_S = 1_800.0
WARM_S = 75.0  # until the windows of ten minutes have the tenth that they need
APART_S = 1.0
LOOK_S = 0.25
OF_THE_MACHINE = frozenset(("scan-late",))  # they are right where the test machine is overloaded


@dataclass(frozen=True)
class Form:
    """`is_quick`: a fault ends after its notification, and its end is not awaited where its rule
    looks back over minutes. `settle_s`: for so long nothing more must come."""

    is_quick: bool
    settle_s: float


QUICK = Form(True, 30.0)
FULL = Form(False, 330.0)  # a group sends again after 300 s


@dataclass(frozen=True)
class Notice:
    at: float
    status: str
    rule: str
    title: str


@dataclass
class Observation:
    """A fault, its place, and the notifications of it."""

    fault: Fault
    place: Place
    sink: HttpSink
    begun_at: float | None = None
    ended_at: float | None = None
    paced_at: float = 0.0
    notices: list[Notice] = field(default_factory=list)

    def concerns(self, alert: dict[str, Any]) -> bool:
        if self.fault.where == "hub":
            return True
        if alert["host"] != self.place.name:
            return False
        own = self.place.machine.keys(self.place.index)
        return self.fault.where not in ("board", "split") or alert["target"] in own

    def has(self, status: str) -> bool:
        return any(notice.status == status for notice in self.notices)

    def may_end(self, now: float, is_quick: bool) -> bool:
        assert self.begun_at is not None
        is_notified = not self.fault.rule or self.has("firing")
        if now - self.begun_at > GIVE_UP_S:
            return True
        long_enough = now - self.begun_at >= self.fault.lasts_s
        return is_notified and (long_enough or (is_quick and bool(self.fault.rule)))

    def is_done(self, now: float, is_quick: bool) -> bool:
        if self.ended_at is None:
            return False
        if not self.has("firing") or self.has("resolved") or now - self.ended_at > GIVE_UP_S:
            return True
        return is_quick and looks_back(self.fault.rule)

    @property
    def flaws(self) -> list[str]:
        """Differences from one notification and, later, that it is resolved."""
        whole = [("firing", self.fault.rule), ("resolved", self.fault.rule)]
        received = [(notice.status, notice.rule) for notice in self.notices]
        due = whole[: max(1, len(received))] if self.fault.rule else []
        return [] if received == due else [
            f"{self.fault.name} ({ON[self.fault.where]}): expected {due}, heard {received}"]


def looks_back(rule_id: str) -> bool:
    """Return whether the signal of the rule lasts for minutes after the fault."""
    [rule] = [shipped for shipped in shipped_rules() if shipped.id == rule_id]
    return "10m" in rule.signal or "5m" in rule.signal


def listen(observations: Sequence[Observation], sink: HttpSink, read_to: int,
           beside: list[Notice]) -> int:
    """Note new notifications; each counts once for each cause that it names."""
    for at in range(read_to, len(sink.got)):
        notice, came = sink.got[at], sink.times[at]
        title = notice["text"].splitlines()[0]
        explained: set[str] = set()
        for observation in observations:
            mine = [alert for alert in notice["alerts"] if observation.concerns(alert)]
            explained |= {alert["id"] for alert in mine}
            for status in ("firing", "resolved"):
                rules = {alert["rule"] for alert in mine
                         if (alert["state"] == "ended") == (status == "resolved")}
                observation.notices += [Notice(came, status, rule, title)
                                        for rule in sorted(rules - OF_THE_MACHINE)]
        beside += [Notice(came, alert["state"], alert["rule"], title)
                   for alert in notice["alerts"]
                   if alert["id"] not in explained and alert["rule"] not in OF_THE_MACHINE]
    return len(sink.got)


@dataclass
class Site:
    """A hub with its nodes, and the separate hubs of hub faults."""

    observations: list[Observation]
    sinks: list[HttpSink]
    beside: list[Notice] = field(default_factory=list)

    def observe(self, form: Form, say: Callable[[str], None]) -> None:
        began, read_to = time.time(), dict.fromkeys(self.sinks, 0)
        done_at: float | None = None
        while done_at is None or time.time() < done_at + form.settle_s:
            now = time.time()
            for sink in self.sinks:
                own = [observation for observation in self.observations if observation.sink is sink]
                read_to[sink] = listen(own, sink, read_to[sink], self.beside)
            for number, observation in enumerate(self.observations):
                if observation.begun_at is None:
                    if now >= began + number * APART_S:
                        observation.fault.begin(observation.place)
                        observation.begun_at = observation.paced_at = time.time()
                elif observation.ended_at is None:
                    self._pace(observation, now)
                    if observation.may_end(now, form.is_quick):
                        observation.fault.end(observation.place)
                        observation.ended_at = time.time()
                        say(f"{observation.ended_at - began:6.0f} s: {observation.fault.name}: "
                            f"{[(notice.status, notice.rule) for notice in observation.notices]}")
            if done_at is None and all(
                    observation.is_done(now, form.is_quick) for observation in self.observations):
                done_at = now
            time.sleep(LOOK_S)

    def _pace(self, observation: Observation, now: float) -> None:
        if observation.fault.pace is not None and now - observation.paced_at >= PACE_S:
            assert observation.begun_at is not None
            observation.paced_at = now
            observation.fault.pace(observation.place, now - observation.begun_at)


@contextlib.contextmanager
def a_site(folder: Path, faults: Iterable[Fault]) -> Iterator[Site]:
    """Build a site in which each fault has its own node or board, all well for a while first."""
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(HubProcess(folder / "hub", 0))
        sink = stack.enter_context(HttpSink())
        add_receiver(hub, sink)
        builder = SiteBuilder(folder, hub, sink, stack)
        site = builder.site([*faults])
        wait_for(builder.all_there, 600, "all GPUs at the hub")
        time.sleep(WARM_S)
        yield site


def add_receiver(hub: HubProcess, sink: HttpSink) -> None:
    answer = hub.ask("/api/v1/receivers", "POST", body=(
        b'{"name": "ops", "kind": "webhook", "least": "info", "to": "%s"}' % sink.url.encode()),
        Content_Type="application/json")
    assert answer.status == 201, answer.body


class SiteBuilder:
    def __init__(self, folder: Path, hub: HubProcess, sink: HttpSink,
                 stack: contextlib.ExitStack) -> None:
        self.folder, self.hub, self.sink, self.stack = folder, hub, sink, stack
        self.gpus = 0
        self.hubs: list[WholeHub] = []

    def site(self, faults: list[Fault]) -> Site:
        places = [*self._simulated([fault for fault in faults if fault.where in (
            "simulated", "training")])]
        for where in ("board", "split"):
            places += self._boards(where, [fault for fault in faults if fault.where == where])
        places += [(fault, Place(self._agent(f"a{number:02}", 1, fault), f"a{number:02}"))
                   for number, fault in enumerate(
                       (fault for fault in faults if fault.where in ("driver", "agent")), start=1)]
        observations = [Observation(fault, place, self.sink) for fault, place in places]
        for fault in (fault for fault in faults if fault.where == "hub"):
            whole = self.stack.enter_context(contextlib.closing(WholeHub(
                self.folder / f"hub{len(self.hubs)}", fault.name, self.stack)))
            add_receiver(whole.hub, whole.sink)
            self.hubs.append(whole)
            observations.append(Observation(fault, Place(whole, ""), whole.sink))
        return Site(observations, [self.sink, *(hub.sink for hub in self.hubs)])

    def _simulated(self, faults: list[Fault]) -> Iterator[tuple[Fault, Place]]:
        if not faults:
            return
        nodes = self.stack.enter_context(contextlib.closing(SimulatedNodes(
            self.folder / "simulated", self.hub, 1, len(faults))))
        self.gpus += GPUS * len(faults)
        children = self.stack.enter_context(contextlib.closing(Children()))
        for fault, name in zip(faults, nodes.names, strict=True):
            if fault.where == "training":
                child = children.start()
                nodes.train(name, child.pid, child.start_ticks)
            yield fault, Place(nodes, name)

    def _boards(self, where: str, faults: list[Fault]) -> Iterator[tuple[Fault, Place]]:
        if not faults:
            return
        node = self._agent(where, len(faults), None, where == "split")
        self.gpus += 3 * len(faults) * (where == "split")
        for index, fault in enumerate(faults):
            yield fault, Place(node, where, index)

    def _agent(self, name: str, gpus: int, fault: Fault | None, is_split: bool = False
               ) -> DriverNode:
        folder = self.folder / name
        folder.mkdir()
        data = folder
        if fault is not None and fault.rule == "agent-disk":
            data = self.stack.enter_context(small_disk(folder / "disk", "16m"))
        self.gpus += gpus
        return self.stack.enter_context(contextlib.closing(DriverNode(
            folder / "node", self.hub, name, gpus, data, is_split)))

    def all_there(self) -> bool:
        items = self.hub.get("/api/v1/gpus?limit=1000")["items"]
        return (sum(item["state"] == "ok" for item in items) == self.gpus
                and all(hub.is_whole() for hub in self.hubs))


