"""The hub decides, the node grants: real hub, real agent, real commands on the C fake of NVML."""

import getpass
import json
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.hub import wait_for
from tests.integration.hubs import Answer, HubProcess
from tests.integration.pools import SAYS_ITS_GPUS, SAYS_ITS_UUID, WAITS, PoolBed

# Says which GPUs it has from when to when.
NOTES = ("import json, os, sys, time; began = time.time(); time.sleep(0.3); "
         "print(json.dumps([os.environ['GPUDECK_GPU_UUIDS'].split(','), began, time.time()]))")


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        yield hub


@pytest.fixture
def bed(hub: HubProcess, tmp_path: Path) -> Iterator[PoolBed]:
    bed = PoolBed(hub, tmp_path)  # gives out nothing by itself
    with bed.agent():
        wait_for(lambda: hub.get("/api/v1/pool")["nodes"])
        yield bed
    bed.close()


def post(hub: HubProcess, path: str, what: dict[str, Any]) -> Answer:
    return hub.ask(f"/api/v1/{path}", "POST", body=json.dumps(what).encode(),
                   Content_Type="application/json")


def test_the_queue_is_seen_and_served(hub: HubProcess, bed: PoolBed, tmp_path: Path) -> None:
    first = bed.start("run", "--gpus", "3", "--for", "2h", "--", sys.executable, "-c", WAITS)
    assert first.stdout is not None
    assert first.stdout.readline() == "on\n"
    second = bed.start("run", "--gpus", "2", "--", sys.executable, "-c", SAYS_ITS_GPUS)
    waits = "it asks for 2 GPUs; 1 of 4 matching are free"
    [claim] = wait_for(lambda: [claim for claim in hub.get("/api/v1/claims")["items"]
                                if claim["why"] == waits])
    assert (claim["place"], claim["asks"]) == (1, "2 GPUs")
    assert 7_000 < claim["wait_s"] <= 7_200
    [lease] = hub.get("/api/v1/leases")["items"]
    assert (len(lease["gpus"]), lease["owner"], lease["state"]) == (3, getpass.getuser(), "active")
    assert lease["is_run"] is True
    [model] = hub.get("/api/v1/pool")["models"]
    assert (model["gpus"], model["leased"], model["free"]) == (4, 3, 1)
    (tmp_path / "token").write_text(hub.api_token)
    reach = ("--hub", hub.url, "--token-file", str(tmp_path / "token"))
    listing = bed.run("pool", *reach)
    fleet = listing.stdout
    assert not listing.stderr, listing.stderr
    assert f": {waits} ({claim['id']})" in fleet
    assert lease["id"] in fleet
    assert "1 of 4 GPUs free on 1 node; 1 lease, 1 in the queue" in fleet
    [row] = [line.split() for line in fleet.splitlines() if line.startswith(lease["host"])]
    assert row[1:4] == ["4", "1", "3"]
    of_node = bed.run("pool", *reach, "--json", "--node", lease["host"])
    assert not of_node.stderr, of_node.stderr
    view = json.loads(of_node.stdout)
    assert [lease["id"] for lease in view["leases"]] == [lease["id"]]
    stranger = bed.run("pool", *reach, "--node", "nowhere")
    assert (stranger.returncode, "there is no node 'nowhere'" in stranger.stderr) == (2, True)
    first.terminate()
    out, err = second.communicate(timeout=60)
    assert out.count("GPU-") == 2
    assert "number 1 in the queue" in err
    wait_for(lambda: hub.get("/api/v1/pool")["leases"] == 0)


def test_a_node_in_maintenance_leases_nothing(hub: HubProcess, bed: PoolBed) -> None:
    [node] = hub.get("/api/v1/nodes")["items"]
    path = f"/api/v1/nodes/{node['id']}/maintenance"
    body = json.dumps({"because": "new fans", "until": time.time() + 600}).encode()
    assert hub.ask(path, "PUT", body=body, Content_Type="application/json").status == 200
    wait_for(lambda: bed.free() == 0)
    run = bed.run("run", "--no-wait", "--", "true")
    assert run.returncode == 10
    assert "maintenance" in run.stderr
    gpus = hub.get("/api/v1/gpus")["items"]
    assert {(gpu["is_free"], gpu["why_not_free"]["reason"]) for gpu in gpus} == {
        (False, "maintenance")}
    assert hub.get("/api/v1/pool")["models"][0]["free"] == 0
    assert hub.ask(path, "DELETE").status == 204
    wait_for(lambda: bed.free() == 4)
    assert bed.run("run", "--", "true").returncode == 0


def test_no_gpu_is_two_commands_at_a_time(bed: PoolBed) -> None:
    runs = [bed.start("run", "--gpus", str(1 + number % 3), "--", sys.executable, "-c", NOTES)
            for number in range(12)]
    spans: dict[str, list[tuple[float, float]]] = {}
    for number, run in enumerate(runs):
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, err
        uuids, began, finished = json.loads(out)
        assert len(uuids) == 1 + number % 3
        for uuid in uuids:
            spans.setdefault(uuid, []).append((began, finished))
    assert len(spans) == 4
    for each_gpu in spans.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(each_gpu)))
    wait_for(lambda: bed.free() == 4)


def test_a_hub_that_is_away_ends_no_lease_and_serves_who_waited(hub: HubProcess, bed: PoolBed
                                                                ) -> None:
    holder = bed.start("run", "--gpus", "3", "--", sys.executable, "-c", WAITS)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "on\n"
    waits = bed.start("run", "--gpus", "2", "--", sys.executable, "-c", SAYS_ITS_GPUS)
    wait_for(bed.in_queue(1))
    hub.kill()
    time.sleep(2.5)  # for the node to review its leases without it
    assert bed.free() == 1
    holder.terminate()
    wait_for(lambda: bed.free() == 4)
    assert waits.poll() is None, "nobody decides now"
    hub.start()
    out, err = waits.communicate(timeout=90)
    assert (waits.returncode, out.count("GPU-")) == (0, 2), err


def test_a_claim_made_at_the_hub_is_held_on_the_node_and_given_back(hub: HubProcess, bed: PoolBed
                                                                    ) -> None:
    never = post(hub, "claims", {"gpus": 9, "owner": getpass.getuser()})
    assert (never.status, "the largest has 4" in never.json["detail"]) == (409, True)
    claim = post(hub, "claims", {"gpus": 2, "owner": getpass.getuser()})
    assert claim.status == 201, claim.body
    [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"])
    assert lease["id"] == claim.json["id"]
    assert bed.free() == 2
    assert (lease["is_run"], lease["idle_since"]) == (False, lease["since"])
    assert post(hub, f"leases/{lease['id']}/extend", {"by_s": "2h"}).status == 204
    wait_for(lambda: hub.get("/api/v1/leases")["items"][0]["until"] == lease["until"] + 7_200)
    assert bed.status()["held"][0]["until"] == lease["until"] + 7_200
    assert post(hub, f"leases/{lease['id']}/give-back", {}).status == 204
    wait_for(lambda: bed.free() == 4)
    wait_for(lambda: hub.get("/api/v1/leases")["items"] == [])


def test_who_uses_a_leased_gpu_without_a_lease_is_told_beside_it(hub: HubProcess, bed: PoolBed
                                                                  ) -> None:
    stranger = subprocess.Popen(["sleep", "600"], user=1, group=1)
    try:
        holder = bed.start("run", "--", sys.executable, "-c",
                           f"import os; print(os.getpid(), flush=True); {SAYS_ITS_UUID}; {WAITS}")
        assert holder.stdout is not None
        child, uuid = int(holder.stdout.readline()), holder.stdout.readline().strip()
        elsewhere = next(gpu for gpu in bed.nvml.gpus if gpu.uuid != uuid)
        bed.gpu(uuid).process(stranger.pid, 20 * 2**30, sm_pct=50).process(child, 2**30, sm_pct=9)
        elsewhere.process(child, 2**30, sm_pct=9)
        bed.nvml.save()

        def lease() -> dict[str, Any]:
            return hub.get("/api/v1/leases")["items"][0]  # type: ignore[no-any-return]

        wait_for(lambda: lease()["outsiders"] and lease()["misplaced"])
        [outsider] = lease()["outsiders"]
        assert (outsider["gpu"], outsider["user"]) == (uuid, pwd.getpwuid(1).pw_name)
        assert f"-{stranger.pid}-" in outsider["task_id"]
        assert [f"-{child}-" in task_id for task_id in lease()["task_ids"]] == [True]
        assert lease()["misplaced"] == [elsewhere.uuid]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_who_is_no_user_of_the_node_waits_and_may_leave(hub: HubProcess, bed: PoolBed) -> None:
    claim = post(hub, "claims", {"gpus": 1, "owner": "no-such-user"})
    assert claim.status == 201
    time.sleep(1.0)
    assert bed.free() == 4
    claim_id = claim.json["id"]
    assert hub.ask(f"/api/v1/claims/{claim_id}", "DELETE").status == 204
    assert hub.ask(f"/api/v1/claims/{claim_id}", "DELETE").status == 404
