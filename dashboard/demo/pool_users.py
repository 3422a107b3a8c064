"""People who use the pool of a demo: real `gpudeck run` processes on its nodes' sockets.

Some compute for hours, one asks for more than is free, one holds GPUs and forgets them, and one has
reserved some for tonight. And somebody has taken a GPU out of service.
"""

import argparse
import getpass
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

LOOK_EVERY_S = 2.0
FORGETS_EVERY_S = 150.0
TONIGHT_H = 20
RESERVED_S = 8 * 3_600.0
# Node, GPUs, for how long, and the name of the script that is run; of a node the first ones hold
# GPUs when the last one asks.
HOLD = (("n005", 2, "8h", "train.py"), ("n005", 1, "45m", "eval.py"),
        ("n006", 4, "3h", "finetune.py"), ("n006", 1, "12h", "serve.py"))
WAIT = (("n005", 8, "4h", "pretrain.py"), ("n006", 6, "1h", "sweep.py"))
FORGETFUL, RESERVES = "n006", "n005"
OUT_OF_SERVICE = ("n007", 3, "its fan rattles; the spare comes on Monday")


class PoolUsers:
    def __init__(self, sockets: Path, client: Client) -> None:
        self._sockets = sockets
        self._client = client
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self._forgets_at = 0.0
        self._has_reserved = self._has_cordoned = self._has_promised = False
        self._tie = tied_to_me()

    def step(self, now: float) -> None:
        try:
            if self._ask("pool")["nodes"] < len({node for node, *_ in HOLD}):
                return
            if not self._has_reserved:
                self._reserve(now)
                self._has_reserved = True
            self._cordon()
            self._promise()
            self._run(HOLD)
            if now >= self._forgets_at:
                self._forgets_at = now + FORGETS_EVERY_S
                self._gpudeck(FORGETFUL, "claim", "--gpus", "1", "--no-wait").wait()
            if self._ask("pool")["leases"] >= len(HOLD):
                self._run(WAIT)
        except CommandError:
            return  # the hub is being started

    def _run(self, asked: Sequence[tuple[str, int, str, str]]) -> None:
        for node, gpus, span, script in asked:
            run = self._runs.get(script)
            if run is None or run.poll() is not None:
                self._runs[script] = self._gpudeck(node, "run", "--gpus", str(gpus), "--for", span,
                                                   "--", sys.executable, self._script(script))

    def _ask(self, path: str) -> Any:
        return self._client.hub.ask_for("GET", path)

    def _reserve(self, now: float) -> None:
        """Once: the hub keeps it over a restart."""
        if any(each["starts_at"] for each in self._ask("claims")["items"]):
            return
        tonight = time.mktime((*time.localtime(now)[:3], TONIGHT_H, 0, 0, 0, 0, -1))
        self._client.hub.ask_for("POST", "claims", {
            "gpus": 4, "owner": getpass.getuser(), "hosts": [RESERVES], "term_s": RESERVED_S,
            "starts_at": tonight if tonight > now + 600 else tonight + 86_400})

    def _promise(self) -> None:
        """Once. Of two promises one is kept: the claim for a whole node waits for longer."""
        if not self._has_promised and not self._ask("qos")["items"]:
            self._client.hub.ask_for("PUT", "qos", {"items": [
                {"tenant": f"user:{getpass.getuser()}", "gpus": 4, "wait_s": 300.0}]})
        self._has_promised = True

    def _cordon(self) -> None:
        """Once, like what is reserved: the node keeps it over a restart."""
        host, index, why = OUT_OF_SERVICE
        if self._has_cordoned or self._ask("repairs")["items"]:
            self._has_cordoned = True
            return
        boards = [each["uuid"] for each in self._client.gpus()
                  if (each["host"], each["index"]) == (host, index)]
        for uuid in boards[:1]:
            shown = self._client.preview("cordon", [uuid], {
                "setting": {"type": "cordon", "gpu_uuid": uuid}})
            if not shown.refused:
                self._client.order(shown.id, why)

    def _gpudeck(self, node: str, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "gpudeck.cli", *words],
            env=importable(__package__, os.environ) | {SOCKET_ENV: str(self._socket(node))},
            preexec_fn=self._tie, stdin=subprocess.DEVNULL)

    def _socket(self, node: str) -> Path:
        return self._sockets / f"{node}.sock"

    def _script(self, name: str) -> str:
        path = self._sockets / name
        path.write_text("import time\ntime.sleep(86_400)\n")
        return str(path)


def main(argv: Sequence[str]) -> int:
    made = argparse.ArgumentParser()
    made.add_argument("--sockets", type=Path, required=True)
    made.add_argument("--hub", required=True)
    made.add_argument("--token-file", type=Path, required=True)
    asked = made.parse_args(argv)
    users = PoolUsers(asked.sockets, Client(asked.hub, asked.token_file.read_text().strip()))
    while True:
        users.step(time.time())
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
