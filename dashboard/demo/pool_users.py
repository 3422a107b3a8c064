"""Users of a demo's pool: real `gpudeck run` processes on its nodes' sockets.

Some compute for hours, one requests more than is free, one holds GPUs and forgets them, and one has
reserved some for tonight. And somebody has taken a GPU out of service. The processes belong to the
user who runs the demo; their environment names the user they stand for.
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

from gpudeck.client.hub import Client
from gpudeck.contract.pool_messages import SOCKET_ENV
from gpudeck.errors import CommandError
from gpudeck.simulated_user import USER_ENV
from gpudeck.system.child_processes import importable, tied_to_me

from .pool_plan import FORGETFUL, RESERVES, PoolRun, boards_of, reservation, runs

STEP_EVERY_S = 2.0
FORGETS_EVERY_S = 150.0
AGAIN_AFTER_S = 20.0  # a run is started again no sooner than this after its last start
WAIT_AFTER_S = 30.0  # runs that have to wait start then at the latest
TONIGHT_H = 20
RESERVED_S = 8 * 3_600.0
OUT_OF_SERVICE = ("n007", 3, "its fan rattles; the spare comes on Monday")
# It writes its own entry for the simulation's list of processes.
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
        """Set up the users. `nodes`: number of the pool's nodes. `is_alone`: nobody else has tasks
        there."""
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
                self._plan_runs(now)
                return
            self._reserve(now)
            self._cordon()
            self._promise()
            self._run(now, waits=False)
            if now >= self._forgets_at:
                self._forgets_at = now + FORGETS_EVERY_S
                self._gpudeck(max(self._boards), FORGETFUL, "claim", "--gpus", "1", "--no-wait"
                              ).wait()
            holding = sum(not entry.waits for entry in self._plan)
            if self._query("pool")["leases"] >= holding or now >= self._began_at + WAIT_AFTER_S:
                self._run(now, waits=True)
        except CommandError:
            return  # the hub is being started
        finally:
            self._list_jobs()

    def _plan_runs(self, now: float) -> None:
        boards = boards_of(self._query("pool/nodes")["items"])
        if len(boards) >= self._nodes:
            self._boards, self._began_at = boards, now
            self._plan = list(runs(boards))

    def _run(self, now: float, waits: bool) -> None:
        for entry in self._plan:
            run = self._runs.get(entry.script)
            if entry.waits != waits or now < self._again_at.get(entry.script, 0.0) or (
                    run is not None and run.poll() is None):
                continue
            self._again_at[entry.script] = now + AGAIN_AFTER_S
            self._runs[entry.script] = self._gpudeck(
                entry.node, entry.user, "run", "--gpus", str(entry.gpus), "--for", entry.span, "--",
                sys.executable, str(self._script(entry)), json.dumps({
                    "kind": entry.kind, "user": entry.user, "seed": len(entry.script) * 7_919,
                    "mem_share": 0.7, "is_leased": True}))

    def _list_jobs(self) -> None:
        """List the jobs on nodes that nobody else uses, for the simulation of these nodes."""
        for node in self._boards if self._is_alone else ():
            jobs = [json.loads(file.read_bytes()) for entry in self._plan
                    if entry.node == node and self._is_running(entry)
                    and (file := self._sockets / f"{entry.script}.job").exists()]
            if jobs != self._jobs.get(node):
                self._jobs[node] = jobs
                new = self._world / f"{node}.jobs.new"
                new.write_text(json.dumps(jobs))
                new.replace(self._world / f"{node}.jobs")

    def _is_running(self, entry: PoolRun) -> bool:
        run = self._runs.get(entry.script)
        return run is not None and run.poll() is None

    def _query(self, path: str) -> Any:
        return self._client.hub.ask_for("GET", path)

    def _reserve(self, now: float) -> None:
        """Reserve GPUs, once: the hub keeps the reservation over a restart."""
        node, gpus = reservation(self._boards)
        if self._has_reserved or gpus < 1 or any(
                claim["starts_at"] for claim in self._query("claims")["items"]):
            self._has_reserved = True
            return
        tonight = time.mktime((*time.localtime(now)[:3], TONIGHT_H, 0, 0, 0, 0, -1))
        self._client.hub.ask_for("POST", "claims", {
            "gpus": gpus, "owner": RESERVES, "hosts": [node], "term_s": RESERVED_S,
            "starts_at": tonight if tonight > now + 600 else tonight + 86_400})

    def _promise(self) -> None:
        """Promise some users a quality of service, once. The claim for a whole node waits longer
        than promised, so that a visitor sees both a promise that is met and one that is not."""
        if not self._has_promised and not self._query("qos")["items"]:
            self._client.hub.ask_for("PUT", "qos", {"items": [
                {"tenant": f"user:{entry.user}", "gpus": entry.gpus, "wait_s": 300.0}
                for entry in self._plan if entry.waits or entry.script == "finetune.py"]})
        self._has_promised = True

    def _cordon(self) -> None:
        """Cordon a GPU, once: the node keeps the cordon over a restart."""
        host, index, why = OUT_OF_SERVICE
        if self._has_cordoned or self._query("repairs")["items"]:
            self._has_cordoned = True
            return
        boards = [gpu["uuid"] for gpu in self._client.gpus(f"node:{host}")
                  if (gpu["host"], gpu["index"]) == (host, index)]
        for uuid in boards[:1]:
            preview = self._client.preview("cordon", [uuid], {
                "setting": {"type": "cordon", "gpu_uuid": uuid}})
            if not preview.refused:
                self._client.order(preview.id, why)

    def _gpudeck(self, node: str, user: str, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli.main", *words],
            env=importable(__package__, os.environ) | {
                SOCKET_ENV: str(self._sockets / f"{node}.sock"), USER_ENV: user},
            preexec_fn=self._tie, stdin=subprocess.DEVNULL)

    def _script(self, entry: PoolRun) -> Path:
        path = self._sockets / entry.script
        path.write_text(SCRIPT)
        (self._sockets / f"{entry.script}.job").unlink(missing_ok=True)
        return path


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sockets", type=Path, required=True)
    parser.add_argument("--world", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--hub", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    options = parser.parse_args(argv)
    users = PoolUsers(options.sockets, options.world,
                      Client(options.hub, options.token_file.read_text().strip()), options.nodes,
                      options.alone)
    while True:
        users.step(time.time())
        time.sleep(STEP_EVERY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
