"""Faults brought about at once, each at a place of its own, and what a receiver hears of them."""

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

# A fault that nobody tells of by then is one that nobody tells of.
GIVE_UP_S = 1_800.0
WARM_S = 75.0  # until the windows of ten minutes have the tenth that they need
APART_S = 1.0
LOOK_S = 0.25
OF_THE_MACHINE = frozenset(("scan-late",))  # rightly, where the tests' own machine is overloaded


@dataclass(frozen=True)
class Form:
    """`is_quick`: a fault ends when it has been told, and its end is not awaited where its rule
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
    """One fault, where it is, and what was heard of it."""

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

    def heard(self, status: str) -> bool:
        return any(each.status == status for each in self.notices)

    def may_end(self, now: float, is_quick: bool) -> bool:
        assert self.begun_at is not None
        is_told = not self.fault.rule or self.heard("firing")
        if now - self.begun_at > GIVE_UP_S:
            return True
        long_enough = now - self.begun_at >= self.fault.lasts_s
        return is_told and (long_enough or (is_quick and bool(self.fault.rule)))

    def is_done(self, now: float, is_quick: bool) -> bool:
        if self.ended_at is None:
            return False
        if not self.heard("firing") or self.heard("resolved") or now - self.ended_at > GIVE_UP_S:
            return True
        return is_quick and looks_back(self.fault.rule)

    @property
    def flaws(self) -> list[str]:
        """All but the one notification and, later, that it is over."""
        wanted = [("firing", self.fault.rule), ("resolved", self.fault.rule)]
        found = [(each.status, each.rule) for each in self.notices]
        expected = wanted[: max(1, len(found))] if self.fault.rule else []
        return [] if found == expected else [
            f"{self.fault.name} ({ON[self.fault.where]}): expected {expected}, heard {found}"]


def looks_back(rule_id: str) -> bool:
    """Whether what it looks at lasts for minutes after the fault."""
    [rule] = [each for each in shipped_rules() if each.id == rule_id]
    return "10m" in rule.signal or "5m" in rule.signal


def listen(observations: Sequence[Observation], sink: HttpSink, seen: int,
           beside: list[Notice]) -> int:
    """What came since; each notification is one of each cause that it names."""
    for at in range(seen, len(sink.got)):
        notice, came = sink.got[at], sink.times[at]
        title = notice["text"].splitlines()[0]
        claimed: set[str] = set()
        for each in observations:
            mine = [alert for alert in notice["alerts"] if each.concerns(alert)]
            claimed |= {alert["id"] for alert in mine}
            for status in ("firing", "resolved"):
                rules = {alert["rule"] for alert in mine
                         if (alert["state"] == "ended") == (status == "resolved")}
                each.notices += [Notice(came, status, rule, title)
                                 for rule in sorted(rules - OF_THE_MACHINE)]
        beside += [Notice(came, alert["state"], alert["rule"], title)
                   for alert in notice["alerts"]
                   if alert["id"] not in claimed and alert["rule"] not in OF_THE_MACHINE]
    return len(sink.got)


@dataclass
class Site:
    """One hub with its nodes, and whole hubs of their own."""

    observations: list[Observation]
    sinks: list[HttpSink]
    beside: list[Notice] = field(default_factory=list)

    def observe(self, form: Form, say: Callable[[str], None]) -> None:
        began, seen = time.time(), dict.fromkeys(self.sinks, 0)
        done_at: float | None = None
        while done_at is None or time.time() < done_at + form.settle_s:
            now = time.time()
            for sink in self.sinks:
                theirs = [each for each in self.observations if each.sink is sink]
                seen[sink] = listen(theirs, sink, seen[sink], self.beside)
            for number, each in enumerate(self.observations):
                if each.begun_at is None:
                    if now >= began + number * APART_S:
                        each.fault.begin(each.place)
                        each.begun_at = each.paced_at = time.time()
                elif each.ended_at is None:
                    self._pace(each, now)
                    if each.may_end(now, form.is_quick):
                        each.fault.end(each.place)
                        each.ended_at = time.time()
                        say(f"{each.ended_at - began:6.0f} s: {each.fault.name}: "
                            f"{[(notice.status, notice.rule) for notice in each.notices]}")
            if done_at is None and all(
                    each.is_done(now, form.is_quick) for each in self.observations):
                done_at = now
            time.sleep(LOOK_S)

    def _pace(self, each: Observation, now: float) -> None:
        if each.fault.pace is not None and now - each.paced_at >= PACE_S:
            assert each.begun_at is not None
            each.paced_at = now
            each.fault.pace(each.place, now - each.begun_at)


@contextlib.contextmanager
def a_site(folder: Path, faults: Iterable[Fault]) -> Iterator[Site]:
    """Each fault has a node of its own, or a board; all of them are well for a while first."""
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(HubProcess(folder / "hub", 0))
        sink = stack.enter_context(HttpSink())
        hub_hears(hub, sink)
        builder = SiteBuilder(folder, hub, sink, stack)
        site = builder.site([*faults])
        wait_for(builder.all_there, 600, "all GPUs at the hub")
        time.sleep(WARM_S)
        yield site


def hub_hears(hub: HubProcess, sink: HttpSink) -> None:
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
        places = [*self._simulated([each for each in faults if each.where in (
            "simulated", "training")])]
        for where in ("board", "split"):
            places += self._boards(where, [each for each in faults if each.where == where])
        places += [(each, Place(self._agent(f"a{number:02}", 1, each), f"a{number:02}"))
                   for number, each in enumerate(
                       (each for each in faults if each.where in ("driver", "agent")), start=1)]
        found = [Observation(fault, place, self.sink) for fault, place in places]
        for fault in (each for each in faults if each.where == "hub"):
            whole = self.stack.enter_context(contextlib.closing(WholeHub(
                self.folder / f"hub{len(self.hubs)}", fault.name, self.stack)))
            hub_hears(whole.hub, whole.sink)
            self.hubs.append(whole)
            found.append(Observation(fault, Place(whole, ""), whole.sink))
        return Site(found, [self.sink, *(each.sink for each in self.hubs)])

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
                and all(each.is_whole() for each in self.hubs))


