"""A node's MPS as its hub tells it: for who tunes its share from afar, or rehearses that."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from gpudeck.client import Client
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import MpsDaemon

from .tune_backtest import MINUTE_S, OF_MPS, MpsLoadMeter, MpsMinute

LOOK_EVERY_S = 2.0


class HubMpsNode:
    def __init__(self, client: Client, node_id: str) -> None:
        self._client = client
        self._node_id = node_id

    def daemon(self, pipes: str) -> MpsDaemon:
        items = self._client.mps(self._node_id)
        daemons = msgspec.convert([each for item in items for each in item["daemons"]],
                                  list[MpsDaemon])
        found = [each for each in daemons if each.pipes == pipes]
        if not found:
            raise CommandError(f"this node has no MPS control daemon in {pipes} any more")
        return found[0]

    def load(self, within_s: float) -> float | None:
        """As `Watch` has it; None: not known."""
        watch, until = MpsLoadMeter(), time.monotonic() + within_s
        while True:
            for gpu in self._client.gpus(metrics="util_pct", node_id=self._node_id):
                if gpu["state"] == "ok" and "util_pct" in gpu["values"]:
                    watch.load(gpu["uuid"], gpu["values"]["util_pct"])
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(LOOK_EVERY_S, left_s))
        theirs = [task for task in self._client.tasks(node_id=self._node_id)
                  if task["kind"] in OF_MPS]
        watch.listed(sum(task["kind"] == "mps_client" for task in theirs),
                     (use["uuid"] for task in theirs for use in task["gpus"]))
        return watch.take()

    def past(self, start: float, end: float) -> list[MpsMinute]:
        if start >= end:
            raise CommandError("--start is before --end", ExitCode.USAGE)
        return list(_minutes(self._client.mps_past(self._node_id, start, end)))


def _minutes(told: dict[str, Any]) -> Iterator[MpsMinute]:
    gpus = told["gpus"]
    for at, (t, clients) in enumerate(zip(told["t"], told["clients"], strict=True)):
        loads = {gpu["gpu"]: gpu["util_pct"][at] for gpu in gpus
                 if gpu["util_pct"][at] is not None}
        yield MpsMinute(t + MINUTE_S, clients, loads,
                        frozenset(gpu["gpu"] for gpu in gpus if gpu["is_mps"][at]))
