"""Reservations, quotas and pre-emption: real hub, real agent, real commands that really end."""

import getpass
import grp
import json
import pwd
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.children import a_ceiling
from tests.fakes.hub import wait_for
from tests.integration.hubs import HubProcess
from tests.integration.pools import SAYS_ITS_GPUS, PoolBed

GIB = 2**30
ME = getpass.getuser()
# Says who it is and where, and stays.
HOLDS = ("import os, time; print(os.getpid(), os.environ['GPUDECK_GPU_UUIDS'], flush=True); "
         "time.sleep(600)")


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub", 0, "--pool", "on") as hub:
        yield hub


@pytest.fixture
def bed(hub: HubProcess, tmp_path: Path) -> Iterator[PoolBed]:
    bed = PoolBed(hub, tmp_path, "--ceiling", str(a_ceiling(tmp_path, rules_may_act=True)))
    with bed.agent():
        wait_for(lambda: hub.get("/api/v1/pool")["nodes"])
        yield bed
    bed.close()


def ask(hub: HubProcess, method: str, path: str, what: dict[str, Any]) -> Any:
    """Ask again, as clients do, while the hub says that it does not know yet."""
    def known_answer() -> Any:
        answer = hub.ask(f"/api/v1/{path}", method, body=json.dumps(what).encode(),
                         Content_Type="application/json")
        return None if answer.status == 503 else answer

    answer = wait_for(known_answer)
    assert answer.status < 300, answer.body
    return answer.json if answer.body else None


def claims(hub: HubProcess) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = hub.get("/api/v1/claims")["items"]
    return items


def test_the_order_of_the_queue_is_set_by_policy_and_kept(hub: HubProcess) -> None:
    assert hub.get("/api/v1/pool")["queue_order"] == "fair"
    assert ask(hub, "PUT", "pool/policy", {"queue_order": "fifo"})["queue_order"] == "fifo"
    assert ask(hub, "PUT", "pool/policy", {"strategy": "spread"})["queue_order"] == "fifo"
    [order_in_use] = [order["name"] for order in hub.get("/api/v1/pool/strategies")["orders"]
                      if order["is_used"]]
    assert order_in_use == hub.get("/api/v1/pool")["queue_order"] == "fifo"
    wrong = hub.ask("/api/v1/pool/policy", "PUT", body=b'{"queue_order": "lifo"}',
                    Content_Type="application/json")
    assert (wrong.status, "smallest_first" in wrong.body.decode()) == (400, True)


def test_what_a_quota_gives_is_all_that_is_leased_and_the_queue_says_so(
        hub: HubProcess, bed: PoolBed) -> None:
    """A quota of a group, for a user of whom no task was ever seen."""
    group = grp.getgrgid(pwd.getpwnam(ME).pw_gid).gr_name
    ask(hub, "PUT", "quotas/two", {"subject": f"group:{group}", "gpus": 2, "mode": "act"})
    first = bed.start("run", "--gpus", "2", "--", sys.executable, "-c", HOLDS)
    assert first.stdout is not None
    assert first.stdout.readline()
    second = bed.start("run", "--", sys.executable, "-c", SAYS_ITS_GPUS)
    [claim] = wait_for(lambda: claims(hub))
    assert claim["why"] == (f"the quota two gives {ME} 2 GPUs on the whole fleet; 2 GPUs are "
                            "leased or in use")
    ask(hub, "PUT", "quotas/two", {"subject": f"group:{group}", "gpus": 3, "mode": "act"})
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out.count("GPU-")) == (0, 1), err


def test_a_reservation_is_kept_free_and_begins_at_its_time(hub: HubProcess, bed: PoolBed) -> None:
    starts_at = time.time() + 15
    ask(hub, "POST", "claims", {"gpus": 4, "owner": ME, "starts_at": starts_at, "term_s": 600})
    clash = hub.ask("/api/v1/claims", "POST", Content_Type="application/json", body=json.dumps(
        {"gpus": 1, "owner": ME, "starts_at": starts_at + 60, "term_s": 600}).encode())
    assert (clash.status, "they are from" in clash.json["detail"]) == (409, True)
    long = bed.start("run", "--for", "1h", "--", sys.executable, "-c", SAYS_ITS_GPUS)
    wait_for(lambda: len(claims(hub)) == 2)
    [lease] = wait_for(lambda: hub.get("/api/v1/leases")["items"])
    assert lease["since"] >= starts_at - 0.5
    assert len(lease["gpus"]) == 4
    assert long.poll() is None, "it would not have been done by then"
    ask(hub, "POST", f"leases/{lease['id']}/give-back", {})
    out, err = long.communicate(timeout=60)
    assert (long.returncode, out.count("GPU-")) == (0, 1), err


def test_who_may_be_taken_from_makes_room_and_the_work_has_really_ended(
        hub: HubProcess, bed: PoolBed) -> None:
    ask(hub, "PUT", "pool/policy", {"is_preemptive": True, "least_run_s": 0, "grace_s": 1})
    runs, pids = [], []
    for priority, more in (("1", ["--preemptible"]), ("2", [])):
        run = bed.start("run", "--gpus", "2", "--priority", priority, *more, "--",
                        sys.executable, "-c", HOLDS)
        assert run.stdout is not None
        pid, uuids = run.stdout.readline().split()
        for gpu in bed.nvml.gpus:
            if gpu.uuid in uuids:
                gpu.process(int(pid), 4 * GIB)
        runs.append(run)
        pids.append(int(pid))
    bed.nvml.save()
    wait_for(lambda: len({task["pid"] for task in hub.get("/api/v1/tasks?limit=100")["items"]}
                         & set(pids)) == 2)
    urgent = bed.start("run", "--gpus", "1", "--priority", "4", "--", sys.executable, "-c",
                       SAYS_ITS_GPUS)
    out, err = urgent.communicate(timeout=120)
    assert (urgent.returncode, out.count("GPU-")) == (0, 1), err
    assert runs[0].wait(30) == 128 + 15
    assert runs[1].poll() is None, "nobody may take from it"
    assert runs[0].stderr is not None
    assert "these GPUs are taken back" in runs[0].stderr.read()
    acts = [command["action"] for command in hub.get("/api/v1/commands?limit=100")["items"]]
    assert acts == ["end", "notify"]


def test_where_the_ceiling_forbids_it_nobody_is_told(hub: HubProcess, tmp_path: Path) -> None:
    """Leave a run alone that has nothing on its GPUs, and would end by itself."""
    bed = PoolBed(hub, tmp_path, "--ceiling", str(a_ceiling(tmp_path, rules_may_act=False)))
    with bed.agent():
        wait_for(lambda: hub.get("/api/v1/pool")["nodes"], 30)
        ask(hub, "PUT", "pool/policy", {"is_preemptive": True, "least_run_s": 0, "grace_s": 1})
        victim = bed.start("run", "--gpus", "4", "--priority", "0", "--preemptible", "--",
                           sys.executable, "-c", HOLDS)
        assert victim.stdout is not None
        assert victim.stdout.readline()
        bed.start("run", "--gpus", "2", "--priority", "4", "--", "true")
        why = "no GPUs are taken back for it: the ceiling of this node does not let rules"
        wait_for(lambda: [claim for claim in claims(hub) if why in claim["why"]], 30)
        [lease] = hub.get("/api/v1/leases")["items"]
        assert lease["state"] == "active"
        victim.terminate()
        assert "taken back" not in victim.communicate(timeout=30)[1]
    bed.close()


def test_a_reservation_asked_on_a_node_is_kept_by_the_hub(hub: HubProcess, bed: PoolBed) -> None:
    # At once: neither its agent nor the hub may have had a reading.
    reservation = bed.run("claim", "--gpus", "3", "--from", "+10min", "--for", "1h")
    assert reservation.returncode == 0, reservation.stderr
    assert reservation.stdout.startswith("reservation ")
    [claim] = claims(hub)
    assert (claim["hosts"], claim["is_here"], len(claim["kept"])) == ([claim["hosts"][0]], True, 3)
    assert 500 < claim["starts_at"] - time.time() <= 600
    wait_for(lambda: not bed.status()["waiting"])
    listing = wait_for(lambda: "reserved" in (out := bed.run("pool").stdout) and out)
    assert listing.count(f"free; reserved by {ME} from ") == 3, listing
    assert "4 of 4 GPUs free on " in listing
    assert ", 3 of these reserved" in listing
    waits = bed.start("run", "--gpus", "4", "--", "true")
    assert waits.stderr is not None
    assert "4 of 4 matching are free, 3 of these are reserved from " in waits.stderr.readline()
    waits.send_signal(2)
    late = bed.run("claim", "--gpus", "2", "--from", "+30min", "--for", "1h")
    assert (late.returncode, "they are from" in late.stderr) == (10, True), late.stderr
    [unchanged] = claims(hub)
    assert unchanged["id"] == claim["id"], "the node has forgotten it, and the hub has not"
    withdrawal = bed.run("pool", "cancel", claim["id"])
    assert (withdrawal.returncode, withdrawal.stdout) == (0, "withdrawn\n"), withdrawal.stderr
    assert not claims(hub)
    alone = bed.run("claim", "--from", "yesterday")
    assert (alone.returncode, "tomorrow 09:00" in alone.stderr) == (2, True)
