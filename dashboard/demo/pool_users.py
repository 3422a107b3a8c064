"""People who use the pool of a demo: real `gpudeck run` processes on its nodes' sockets.

Some compute for hours, one asks for more than is free, one holds GPUs and forgets them, and one has
reserved some for tonight. And somebody has taken a GPU out of service. The processes are of the
user who runs the demo; whose they are in its story they say in their environment.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudeck.child_processes import importable, tied_to_me
from gpudeck.client import Client
from gpudeck.errors import CommandError
from gpudeck.pool.messages import SOCKET_ENV
from gpudeck.simulated_user import USER_ENV

from .pool_plan import FORGETFUL, RESERVES, PoolRun, boards_of, reserved, runs

LOOK_EVERY_S = 2.0
FORGETS_EVERY_S = 150.0
AGAIN_AFTER_S = 20.0  # of a run that has ended
WAIT_AFTER_S = 30.0  # those who find GPUs taken come then at the latest
TONIGHT_H = 20
RESERVED_S = 8 * 3_600.0
OUT_OF_SERVICE = ("n007", 3, "its fan rattles; the spare comes on Monday")
# It says which process it is, as the simulation lists it.
SCRIPT = """import json, os, sys, time
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
boot = open("/proc/sys/kernel/random/boot_id").read()[:8]
pid, ticks, now = os.getpid(), int(stat[19]), time.time()
job = dict(json.loads(sys.argv[1]), pid=pid, start_ticks=ticks, started_at=now, working_since=now,
           gpus=os.environ["GPUDECK_GPU_UUIDS"].split(","), job_id=f"{boot}-{pid}-{ticks}",
           command=f"python {os.path.basename(__file__)}")
with open(__file__ + ".new", "w") as file:
    json.dump(job, file)
os.replace(__file__ + ".new", __file__ + ".job")
time.sleep(86_400)
"""


class PoolUsers:
    def __init__(self, sockets: Path, world: Path, client: Client, nodes: int, is_alone: bool
                 ) -> None:
        """`nodes`: of the pool. `is_alone`: nobody else has tasks there."""
        self._sockets = sockets
        self._world = world
        self._client = client
        self._nodes = nodes
        self._is_alone = is_alone
        self._plan: list[PoolRun] = []
        self._boards: dict[str, int] = {}
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self._again_at: dict[str, float] = {}
        self._jobs: dict[str, list[Any]] = {}
        self._began_at = self._forgets_at = 0.0
        self._has_reserved = self._has_cordoned = self._has_promised = False
        self._tie = tied_to_me()

    def step(self, now: float) -> None:
        try:
            if not self._plan:
                self._look(now)
                return
            self._reserve(now)
            self._cordon()
            self._promise()
            self._run(now, waits=False)
            if now >= self._forgets_at:
                self._forgets_at = now + FORGETS_EVERY_S
                self._gpudeck(max(self._boards), FORGETFUL, "claim", "--gpus", "1", "--no-wait"
                              ).wait()
            holding = sum(not each.waits for each in self._plan)
            if self._ask("pool")["leases"] >= holding or now >= self._began_at + WAIT_AFTER_S:
                self._run(now, waits=True)
        except CommandError:
            return  # the hub is being started
        finally:
            self._list_jobs()

    def _look(self, now: float) -> None:
        found = boards_of(self._ask("pool/nodes")["items"])
        if len(found) >= self._nodes:
            self._boards, self._began_at = found, now
            self._plan = list(runs(found))

    def _run(self, now: float, waits: bool) -> None:
        for each in self._plan:
            run = self._runs.get(each.script)
            if each.waits != waits or now < self._again_at.get(each.script, 0.0) or (
                    run is not None and run.poll() is None):
                continue
            self._again_at[each.script] = now + AGAIN_AFTER_S
            self._runs[each.script] = self._gpudeck(
                each.node, each.user, "run", "--gpus", str(each.gpus), "--for", each.span, "--",
                sys.executable, str(self._script(each)), json.dumps({
                    "kind": each.kind, "user": each.user, "seed": len(each.script) * 7_919,
                    "mem_share": 0.7, "is_leased": True}))

    def _list_jobs(self) -> None:
        """What is on the nodes that nobody else uses, for their simulation."""
        for node in self._boards if self._is_alone else ():
            jobs = [json.loads(file.read_bytes()) for each in self._plan
                    if each.node == node and self._is_running(each)
                    and (file := self._sockets / f"{each.script}.job").exists()]
            if jobs != self._jobs.get(node):
                self._jobs[node] = jobs
                new = self._world / f"{node}.jobs.new"
                new.write_text(json.dumps(jobs))
                new.replace(self._world / f"{node}.jobs")

    def _is_running(self, each: PoolRun) -> bool:
        run = self._runs.get(each.script)
        return run is not None and run.poll() is None

    def _ask(self, path: str) -> Any:
        return self._client.hub.ask_for("GET", path)

    def _reserve(self, now: float) -> None:
        """Once: the hub keeps it over a restart."""
        node, gpus = reserved(self._boards)
        if self._has_reserved or gpus < 1 or any(
                each["starts_at"] for each in self._ask("claims")["items"]):
            self._has_reserved = True
            return
        tonight = time.mktime((*time.localtime(now)[:3], TONIGHT_H, 0, 0, 0, 0, -1))
        self._client.hub.ask_for("POST", "claims", {
            "gpus": gpus, "owner": RESERVES, "hosts": [node], "term_s": RESERVED_S,
            "starts_at": tonight if tonight > now + 600 else tonight + 86_400})

    def _promise(self) -> None:
        """Once. Of two promises one is kept: the claim for a whole node waits for longer."""
        if not self._has_promised and not self._ask("qos")["items"]:
            self._client.hub.ask_for("PUT", "qos", {"items": [
                {"tenant": f"user:{each.user}", "gpus": each.gpus, "wait_s": 300.0}
                for each in self._plan if each.waits or each.script == "finetune.py"]})
        self._has_promised = True

    def _cordon(self) -> None:
        """Once, like what is reserved: the node keeps it over a restart."""
        host, index, why = OUT_OF_SERVICE
        if self._has_cordoned or self._ask("repairs")["items"]:
            self._has_cordoned = True
            return
        boards = [each["uuid"] for each in self._client.gpus(f"node:{host}")
                  if (each["host"], each["index"]) == (host, index)]
        for uuid in boards[:1]:
            shown = self._client.preview("cordon", [uuid], {
                "setting": {"type": "cordon", "gpu_uuid": uuid}})
            if not shown.refused:
                self._client.order(shown.id, why)

    def _gpudeck(self, node: str, user: str, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli", *words],
            env=importable(__package__, os.environ) | {
                SOCKET_ENV: str(self._sockets / f"{node}.sock"), USER_ENV: user},
            preexec_fn=self._tie, stdin=subprocess.DEVNULL)

    def _script(self, each: PoolRun) -> Path:
        path = self._sockets / each.script
        path.write_text(SCRIPT)
        (self._sockets / f"{each.script}.job").unlink(missing_ok=True)
        return path


def main(argv: Sequence[str]) -> int:
    made = argparse.ArgumentParser()
    made.add_argument("--sockets", type=Path, required=True)
    made.add_argument("--world", type=Path, required=True)
    made.add_argument("--nodes", type=int, required=True)
    made.add_argument("--alone", action="store_true")
    made.add_argument("--hub", required=True)
    made.add_argument("--token-file", type=Path, required=True)
    asked = made.parse_args(argv)
    users = PoolUsers(asked.sockets, asked.world,
                      Client(asked.hub, asked.token_file.read_text().strip()), asked.nodes,
                      asked.alone)
    while True:
        users.step(time.time())
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
