"""Previews and commands as the hub answers them, with values of their own in each run."""

import random
from typing import Any

import msgspec

from gpudeck.contract.action_views import CommandView, PreviewItemView, PreviewView


def item(chance: random.Random, **other: Any) -> dict[str, Any]:
    pid = chance.randrange(1_000, 4_000_000)
    task_id = f"{chance.getrandbits(32):08x}-{pid}-{chance.randrange(10**9)}"
    gpus = [{"uuid": f"GPU-{chance.getrandbits(64):016x}", "index": at,
             "mem_used_bytes": chance.uniform(1e9, 8e10)} for at in range(chance.randint(1, 3))]
    processes = [{"pid": pid + at, "user": "alice", "command": f"python train.py {at}",
                  "task_id": task_id if at == 0 else None, "start_ticks": chance.randrange(10**9)}
                 for at in range(chance.randint(1, 4))]
    bystanders = [{"task_id": f"other-{chance.randrange(10**6)}-{at}", "user": "bob",
                   "command": "python infer.py", "gpus": gpus[:1]}
                  for at in range(chance.randint(0, 2))]
    return {
        "task_ids": [task_id], "node": f"{chance.getrandbits(128):032x}", "host": "rack-3",
        "job_id": task_id, "owner": "alice", "command": "python train.py", "age_s": 7_391.0,
        "kind": "compute", "manager": None, "mem_used_bytes": 2.0**31, "gpus": gpus,
        "processes": processes, "bystanders": bystanders, "keep": None, "warnings": [],
        "refusals": [], **other}


def preview(chance: random.Random, action: str = "end", items: list[dict[str, Any]] | None = None,
            **other: Any) -> PreviewView:
    items_shown = [item(chance) for _ in range(chance.randint(1, 4))] if items is None else items
    return msgspec.convert({
        "id": f"{chance.getrandbits(64):x}", "action": action, "params": {"grace_s": 30.0},
        "expires_at": 1_060.0, "items": items_shown, **other}, PreviewView, strict=True)


def item_view(chance: random.Random, **other: Any) -> PreviewItemView:
    return msgspec.convert(item(chance, **other), PreviewItemView)


def command(state: str, **other: Any) -> CommandView:
    return msgspec.convert({
        "id": "c1", "action": "end", "task_id": "0a1b2c3d-4711-99", "job_id": None, "node": "n",
        "host": "rack-3", "owner": "alice", "command": "python", "state": state, "step": "",
        "refusal": None, "verified": None, "sentence": "", **other}, CommandView)
