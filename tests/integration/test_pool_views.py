"""Leases and claims in REST, on the live socket and in Prometheus, and who may see them."""

import json
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websocket import WebSocketTimeoutException as TimeoutException

from gpudeck.contract.pool_link import NodeClaim, OfferedGpu, PoolReport, ReportedEnd, ReportedLease
from gpudeck.pool.core.claims import Claim
from tests.integration.hubs import Answer, HubProcess, RawSocket, WireAgent, one_task, wait_for
from tests.integration.test_api_docs import run
from tests.integration.visitors import add_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pool.md"
GPUS = 3


class PoolAgent(WireAgent):
    """An agent that reports of its pool what a test sets."""

    def __init__(self, hub: HubProcess) -> None:
        super().__init__(f"p{secrets.token_hex(3)}", GPUS)
        self.connect(hub)
        self.tick(one_task())
        self.report = PoolReport(tuple(
            OfferedGpu(gpu.uuid, gpu.name, gpu.index, mem_bytes=gpu.mem_total_bytes)
            for gpu in self.facts), (), ())
        self.tell()
        wait_for(lambda: self.node_id in {
            row["node"] for row in hub.get("/api/v1/pool/nodes")["items"]})

    @property
    def host(self) -> str:
        return self.caller.said.host

    def lease(self, gpu: int, owner: str = "alice", name: str = "", **more: Any) -> ReportedLease:
        now = time.time()
        claim = Claim(id=name or secrets.token_hex(8), owner=owner, gpus=1, submitted_at=now - 60,
                      shape="python train.py", **more)
        return ReportedLease(claim, (self.facts[gpu].uuid,), "active", now - 30, now + 3_600, now,
                             is_run=True)

    def tell(self, **more: Any) -> None:
        self.report = msgspec.structs.replace(self.report, **more)
        self.say(self.report)


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", 0, "--pool", "on") as hub:
        yield hub


@pytest.fixture(name="agent")
def _agent(hub: HubProcess) -> Iterator[PoolAgent]:
    agent = PoolAgent(hub)
    yield agent
    agent.close()
    wait_for(lambda: hub.get("/api/v1/pool")["nodes"] == 0)


def ask(hub: HubProcess, path: str, what: Any, token: str = "api") -> Answer:
    return hub.ask(f"/api/v1/{path}", "POST", token, json.dumps(what).encode(),
                   Content_Type="application/json")


def silent(viewer: RawSocket, *events: str) -> bool:
    """Return True once none of these events has come for a second."""
    end = time.monotonic() + 1.0
    try:
        while (left_s := end - time.monotonic()) > 0:
            assert viewer.receive(left_s)["data"][0] not in events
    except TimeoutException:
        pass
    return True


def test_a_viewer_hears_of_leases_and_claims_that_they_may_see(hub: HubProcess, agent: PoolAgent
                                                               ) -> None:
    other = add_program(hub, "viewer", groups=("elsewhere",))
    seeing, blind = (RawSocket(hub, "/live", token) for token in (hub.api_token, other))
    lease = agent.lease(1)
    agent.tell(leases=(lease,))
    item = seeing.event("lease")
    assert (item["id"], item["owner"], item["host"], item["gpus"], item["state"]) == (
        lease.claim.id, "alice", agent.host, [agent.facts[1].uuid], "active")
    [listed] = hub.get("/api/v1/leases")["items"]
    assert item == listed
    waits = Claim(id=secrets.token_hex(8), owner="carol", gpus=GPUS, submitted_at=time.time())
    agent.tell(claims=(NodeClaim(waits, True),))
    item = seeing.event("claim")
    assert (item["id"], item["claim"]["owner"], item["claim"]["place"]) == (waits.id, "carol", 1)
    assert item["claim"]["is_here"] is False
    end = ReportedEnd(lease.claim, lease.uuids, lease.since, time.time(), "released", "given back")
    agent.tell(leases=(), claims=(), ended=(end,))
    item = seeing.event("lease")
    assert (item["state"], item["why"], item["until"]) == ("released", "given back", end.ended_at)
    assert seeing.event("claim") == {"id": waits.id, "claim": None}
    assert silent(blind, "lease", "claim")
    assert hub.ask("/api/v1/leases", token=other).json["items"] == []
    assert hub.ask("/api/v1/pool/nodes", token=other).json["items"] == []


def test_the_map_is_sent_who_holds_what_and_again_when_it_changes(hub: HubProcess, agent: PoolAgent
                                                                  ) -> None:
    agent.tell(leases=(agent.lease(2, "bob"),))
    wait_for(lambda: hub.get("/api/v1/leases")["items"])
    viewer = RawSocket(hub, "/live", hub.api_token)
    viewer.emit("watch", {"metric": "util_pct", "filter": ""})
    slot = viewer.event("layout")["uuid"].index(agent.facts[2].uuid)

    def holder() -> str | None:
        columns = viewer.event("leases")
        number = int.from_bytes(columns["owner"][2 * slot:2 * slot + 2], "little")
        return None if number == 65_535 else str(columns["names"][number])

    assert holder() == "bob"
    agent.tell(leases=())
    agent.tick()
    assert holder() is None
    assert silent(viewer, "leases")


def test_leases_come_in_pages_and_by_gpu(hub: HubProcess, agent: PoolAgent) -> None:
    # The newest has the least id: pages go by ids.
    leases = tuple(agent.lease(at, name=f"lease{GPUS - at}") for at in range(GPUS))
    agent.tell(leases=leases)
    wait_for(lambda: len(hub.get("/api/v1/leases")["items"]) == GPUS)
    page = hub.get("/api/v1/leases?limit=1")
    rows = page["items"]
    while page["next"] is not None:
        page = hub.get(f"/api/v1/leases?limit=1&cursor={page['next']}")
        rows += page["items"]
    assert [row["id"] for row in rows] == ["lease1", "lease2", "lease3"]
    [one] = hub.get(f"/api/v1/leases?gpu={agent.facts[0].uuid}")["items"]
    assert one["id"] == leases[0].claim.id
    assert hub.get("/api/v1/leases?gpu=GPU-of-nobody")["items"] == []
    [node] = hub.get("/api/v1/pool/nodes")["items"]
    assert [gpu["place"] for gpu in node["gpus"]] == ["0", "1", "2"]


def test_a_reservation_is_asked_for_in_words_and_stays_until_its_time(
        hub: HubProcess, agent: PoolAgent) -> None:
    agent.tell(leases=tuple(agent.lease(at) for at in range(GPUS)))  # nothing is free now
    wait_for(lambda: len(hub.get("/api/v1/leases")["items"]) == GPUS)
    begins = round(time.time() + 86_400, 3)
    request = {"gpus": 2, "owner": "carol", "term_s": "2d", "mem_bytes": "40G", "starts_at": begins,
               "hosts": [agent.host]}
    for change, why in (({"term_s": "soon"}, "term_s: 'soon' is not a span of t"),
                        ({"term_s": "2s"}, "term_s: from 1 min to 365 d"),
                        ({"mem_bytes": "40 pears"}, "mem_bytes: "),
                        ({"starts_at": time.time() - 60}, "starts_at: ")):
        answer = ask(hub, "claims", request | change)
        assert (answer.status, answer.json["detail"][:len(why)]) == (400, why)
    created = ask(hub, "claims", request)
    assert created.status == 201, created.body
    [claim] = wait_for(lambda: hub.get("/api/v1/claims")["items"])
    assert (claim["id"], claim["gpus"], claim["term_s"], claim["starts_at"], claim["hosts"]) == (
        created.json["id"], 2, 172_800.0, begins, [agent.host])
    assert claim["is_here"] is True
    assert hub.get("/api/v1/pool")["waiting"] == 0, "its time has not come"
    text = hub.ask("/metrics?name[]=gpudeck_pool_waiting_gpus").body.decode()
    assert text == ""
    assert hub.ask(f"/api/v1/claims/{claim['id']}", "DELETE").status == 204


def test_prometheus_sees_the_pool_as_its_token_does(hub: HubProcess, agent: PoolAgent) -> None:
    agent.tell(leases=(agent.lease(0),), claims=(NodeClaim(Claim(
        id="w", owner="carol", gpus=GPUS, submitted_at=time.time(), models=("h100",)), True),))
    wait_for(lambda: hub.get("/api/v1/claims")["items"])
    names = "&".join(f"name[]=gpudeck_pool_{name}" for name in ("gpus", "waiting_gpus",
                                                               "wait_seconds"))

    def text_with_the_claim() -> str:
        text = hub.ask(f"/metrics?{names}").body.decode()
        return text if 'waiting_gpus{model="h100"} 3' in text else ""

    text = wait_for(text_with_the_claim)
    model = agent.facts[0].name
    assert f'gpudeck_pool_gpus{{state="free",model="{model}"}} {GPUS - 1}' in text
    assert f'gpudeck_pool_gpus{{state="leased",model="{model}"}} 1' in text
    assert "gpudeck_pool_wait_seconds_count " in text
    other = add_program(hub, "viewer", groups=("elsewhere",))
    assert hub.ask(f"/metrics?{names}", token=other).body == b""


def test_a_lease_is_extended_by_who_may(hub: HubProcess, agent: PoolAgent) -> None:
    lease = agent.lease(0, "alice")
    agent.tell(leases=(lease,))
    wait_for(lambda: hub.get("/api/v1/leases")["items"])
    path = f"leases/{lease.claim.id}/extend"
    stranger = add_program(hub, "user", groups=("*",), unix_names=("bob",))
    assert ask(hub, path, {"by_s": "2h"}, stranger).status == 404
    assert ask(hub, path, {"by_s": "31d"}).json["detail"] == "by_s: from 1 min to 30 d"
    assert ask(hub, "leases/none/extend", {"by_s": "2h"}).status == 404
    assert ask(hub, path, {"by_s": "2h"}).status == 204
    records = hub.get("/api/v1/audit?limit=20")["items"]
    [record] = [record for record in records if record["action"] == "extend_lease"]
    assert record["detail"].items() >= {
        "lease": lease.claim.id, "owner": "alice", "by_s": 7_200.0}.items()


def test_who_asked_the_pool_for_what_is_in_the_audit_log(hub: HubProcess, agent: PoolAgent
                                                         ) -> None:
    lease = agent.lease(0, "alice")
    agent.tell(leases=(lease,))
    wait_for(lambda: hub.get("/api/v1/leases")["items"])
    token = add_program(hub, "operator")
    too_many = ask(hub, "claims", {"owner": "bob", "gpus": 1_000}, token)
    created = ask(hub, "claims", {"owner": "bob", "gpus": GPUS}, token)
    withdrawn = hub.ask(f"/api/v1/claims/{created.json['id']}", "DELETE", token)
    back = ask(hub, f"leases/{lease.claim.id}/give-back", {}, token)
    assert [reply.status for reply in (too_many, created, withdrawn, back)] == [409, 201, 204, 204]
    records = [record for record in hub.get("/api/v1/audit?limit=50")["items"]
               if record["actor"] == "a operator" and record["kind"] == "pool"]
    assert [(record["action"], record["outcome"]) for record in records[::-1]] == [
        ("claim", "refused"), ("claim", "done"), ("withdraw_claim", "done"),
        ("give_back_lease", "done")]
    assert records[1]["detail"].items() >= {"claim": created.json["id"], "owner": "bob"}.items()


def test_the_example_of_the_docs_works(hub: HubProcess, agent: PoolAgent) -> None:
    [block] = [text for text in re.findall(r"^```sh\n(.+?)^```", PAGE.read_text(), re.M | re.S)
               if "curl" in text]
    agent.tell(leases=tuple(agent.lease(at) for at in range(GPUS)))
    wait_for(lambda: len(hub.get("/api/v1/leases")["items"]) == GPUS)
    created = json.loads(run(block, hub))
    [claim] = wait_for(lambda: hub.get("/api/v1/claims")["items"])
    assert (claim["id"], claim["owner"]) == (created["id"], "alice")
    assert claim["starts_at"] > time.time()
    assert hub.ask(f"/api/v1/claims/{claim['id']}", "DELETE").status == 204
