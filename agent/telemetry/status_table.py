"""GPUs and tasks as the REST interface shapes them, and as a table for a terminal. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpudeck.contract.actions import total
from gpudeck.measures.jobs import average_sm_pct
from gpudeck.measures.metrics import COLUMNS, SLOW, Absence
from gpudeck.words.actions import printable
from gpudeck.words.command_lines import short_command

from ..readings import Reading
from ..tasks.seen import GpuTask

Item = dict[str, Any]
Column = tuple[str, bool, Callable[[Item], str]]  # title, right-aligned, cell

NOTHING = "-"
COMMAND_LEAST = 40
OWNER = ("uid", "parent_pid", "container", "container_name", "pod", "namespace", "slurm_job",
         "unit", "notebook", "launch", "rank")
SHOWN_FACTS = ("mem_total_bytes", "power_limit_w", "parent_uuid", "mig_profile", "gpu_instance",
               "compute_instance")


def gpu_items(reading: Reading, node: str) -> list[Item]:
    items = []
    for gpu, facts in zip(reading.gpus, reading.facts, strict=True):
        rows = list(zip(COLUMNS, gpu.values, gpu.absent, strict=True))
        if gpu.slow:
            rows += zip(SLOW, gpu.slow, gpu.slow_absent, strict=True)
        present = {
            metric.key: value for metric, value, why in rows
            if why == Absence.PRESENT and metric.low <= value <= metric.high
        }
        items.append({
            "uuid": gpu.uuid, "node": node, "index": facts.index,
            "place": facts.place, "name": facts.name, "state": gpu.state,
            "sampled_at": reading.taken_at, "values": present,
            "missing": {
                metric.key: (Absence(why) or Absence.UNKNOWN).word
                for metric, _, why in rows if metric.key not in present
            },
            "facts": {key: getattr(facts, key) for key in SHOWN_FACTS},
        })
    return items


def task_items(gpu_tasks: Sequence[GpuTask], node: str) -> list[Item]:
    items: dict[str, Item] = {}
    for entry in gpu_tasks:
        task = entry.task
        item = items.setdefault(task.id, {
            "id": task.id, "node": node, "pid": task.pid, "started_at": task.started_at,
            "user": task.user, "command": task.command, "gpus": [], "mem_used_bytes": None,
            "sm_pct": None, "state": "suspended" if entry.is_suspended else entry.state,
            "manager": task.manager, "kind": task.kind, "job_id": task.job_id, "owner": {
                name: value for name in OWNER if (value := getattr(task, name)) is not None},
        })
        item["gpus"].append({
            "uuid": entry.gpu_uuid, "mem_used_bytes": entry.mem_used_bytes, "sm_pct": entry.sm_pct,
        })
    for item in items.values():
        item["mem_used_bytes"] = total(use["mem_used_bytes"] for use in item["gpus"])
        item["sm_pct"] = average_sm_pct((use["uuid"], use["sm_pct"]) for use in item["gpus"])
    return list(items.values())


def as_json(items: Sequence[Item], **more: Any) -> str:
    return json.dumps({"items": list(items), "next": None, **more}, indent=2)


def here(reading: Reading, agent: Item | None) -> Item:
    """Return what `status` shows of this machine besides its GPUs. The form is promised:
    docs/doctor.md."""
    return {
        "reader": {"state": "ok", "detail": reading.detail, "read_s": reading.took_s},
        "driver_version": reading.driver_version, "agent": agent,
    }


def nothing_here(state: str, detail: str, agent: Item | None) -> Item:
    """Return the same form where there is nothing to read."""
    return {"reader": {"state": state, "detail": detail, "read_s": None},
            "driver_version": None, "agent": agent}


def notes(more: Mapping[str, Any]) -> list[str]:
    """Return what a table has no column for: which GPU sleeps, is lost or must be reset, or that
    the agent has no room."""
    texts = (more.get("reader", {}).get("detail"), more.get("disk"))
    return [printable(text) for text in texts if text]


def held_lines(holds: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each host that is stopped: nobody shall wonder why nothing acts."""
    return [f"STOPPED, no actions on {printable(host)}: {'; '.join(map(printable, why))}"
            for host, why in holds.items()]


def gpu_table(items: Sequence[Item], hosts: Mapping[str, str] = MappingProxyType({})) -> str:
    """`hosts`: node id -> the name people know it by."""
    sites = {item.get("site") for item in items}  # a hub that views others says whose each is
    columns = (_SITE_COLUMN, *_GPU_COLUMNS) if len(sites) > 1 else _GPU_COLUMNS
    return table(columns, _by_host(items, hosts), "no GPU")


def task_table(items: Sequence[Item], hosts: Mapping[str, str] = MappingProxyType({}),
               places: Mapping[str, str] = MappingProxyType({}), width: int | None = None) -> str:
    """`places`: of GPUs by UUID, as people number them. `width`: of the terminal; None: as wide as
    it is."""
    rows = [{**item, "gpus": [{**use, "uuid": places.get(use["uuid"], use["uuid"])}
                              for use in item["gpus"]]} for item in _by_host(items, hosts)]
    text = table(_TASK_COLUMNS, rows, "no task on any GPU")
    if width is not None:  # nothing but commands is cut, and they keep what tells them apart
        width = max(width, text.find("COMMAND") + COMMAND_LEAST)
    return "\n".join(line[:width] for line in text.split("\n"))


def _by_host(items: Sequence[Item], hosts: Mapping[str, str]) -> list[Item]:
    return [{**item, "node": hosts.get(item["node"], item["node"])} for item in items]


def table(columns: Sequence[Column], items: Sequence[Item], empty: str) -> str:
    if not items:
        return empty
    rows = [[title for title, _, _ in columns]]
    rows += [[printable(cell(item)) for _, _, cell in columns] for item in items]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, (_, right, _) in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in rows
    )


def _rounded(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def _value(key: str) -> Callable[[Item], str]:
    return lambda item: _rounded(item.get("values", {}).get(key))


def _text(key: str) -> Callable[[Item], str]:
    return lambda item: NOTHING if item.get(key) is None else str(item[key])


def _gib(amount: float | None) -> str:
    return NOTHING if amount is None else f"{amount / 2**30:.1f}"


def _memory(item: Item) -> str:
    amount = _gib(item.get("values", {}).get("mem_used_bytes"))
    return f"{amount} / {_gib(item.get('facts', {}).get('mem_total_bytes'))}"


def _gpus(item: Item) -> str:
    return ",".join(str(use["uuid"])[:12] for use in item["gpus"])


_SITE_COLUMN: Column = ("SITE", False, _text("site"))
_GPU_COLUMNS: tuple[Column, ...] = (
    ("NODE", False, _text("node")),
    ("GPU", True, lambda item: str(item.get("place", item["index"]))),
    ("NAME", False, _text("name")),
    ("UTIL %", True, _value("util_pct")),
    ("SM %", True, _value("sm_active_pct")),
    ("MEM GiB", True, _memory),
    ("TEMP °C", True, _value("temp_c")),
    ("POWER W", True, _value("power_w")),
    ("STATE", False, _text("state")),
    ("UUID", False, _text("uuid")),
)
_TASK_COLUMNS: tuple[Column, ...] = (
    ("NODE", False, _text("node")),
    ("PID", True, _text("pid")),
    ("USER", False, _text("user")),
    ("GPU", False, _gpus),
    ("MEM GiB", True, lambda item: _gib(item["mem_used_bytes"])),
    ("SM %", True, lambda item: _rounded(item["sm_pct"])),
    ("STATE", False, _text("state")),
    ("MANAGER", False, _text("manager")),
    ("TASK", False, _text("id")),
    ("COMMAND", False, lambda item: short_command(item["command"])),
)
