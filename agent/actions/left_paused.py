"""Tasks that gpudeck has paused on this machine, and that nobody has resumed since: what is removed
lets them go on, because nothing is left that would."""

import json
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.contract.actions import ProcessIdentity

from ..journal.store import ActionStore, JournalError, NodeAudit
from ..tasks.boot_id import boot_id
from ..tasks.jobs import below
from ..tasks.processes import table
from .signals import ProcessHandles, is_same, make_room

ENDS_OF_A_PAUSE = ("resume", "end")  # whatever became of them
RUNS_WITHIN_S = 2.0


def let_go_on(data: Path) -> tuple[list[str], list[int]]:
    """Continue what the agent of a folder has left paused; return a sentence for each task, and the
    pids that still stand."""
    file = data / "acts.db"
    if not file.exists():
        return [], []
    store = ActionStore(file)
    try:
        tasks = paused_tasks((json.loads(link.body) for link in NodeAudit(store, "").links()),
                             boot_id())
    except JournalError as why:
        return [f"tasks that gpudeck has paused stay so, as it is not known which: {why}"], []
    finally:
        store.close()
    make_room()
    lines, still = [], list[int]()
    for task_id, processes in tasks.items():
        count, stopped_pids = _continue(processes)
        still += stopped_pids
        if count:
            lines.append(f"resumed the task {task_id}, which gpudeck had paused: {count} "
                         f"process{'' if count == 1 else 'es'}")
    return lines, still


def paused_tasks(records: Iterable[dict[str, Any]], boot: str
                 ) -> dict[str, tuple[ProcessIdentity, ...]]:
    """Return the processes of each task that was paused within this start of the machine, and that
    no later action was to continue. Pure."""
    tasks: dict[str, tuple[ProcessIdentity, ...]] = {}
    for record in records:
        task_id = record.get("task_id")
        if not record.get("intent") or task_id is None or not task_id.startswith(f"{boot[:8]}-"):
            continue
        if record["action"] == "pause":
            tasks[task_id] = msgspec.convert(
                tuple(record["victims"]), tuple[ProcessIdentity, ...])
        elif record["action"] in ENDS_OF_A_PAUSE:
            pids = {victim["pid"] for victim in record["victims"]}
            tasks = {other: processes for other, processes in tasks.items()
                     if pids.isdisjoint(process.pid for process in processes)}
    return tasks


def _continue(processes: Iterable[ProcessIdentity]) -> tuple[int, list[int]]:
    """Continue those that are the same and stand, with what they had started; return how many, and
    the pids of those that stand all the same."""
    with ProcessHandles() as handles:
        pids = [process.pid for process in processes if (
            facts := handles.facts(process.pid)) is not None and is_same(facts.identity, process)]
        opened = [handle for row in below(pids, table()) if row.state == "T"
                  and (handle := handles.open(row.pid)) is not None]
        stopped = [handle for handle in opened if (facts := handle.facts()) is not None
                   and facts.row.state == "T"]
        for handle in stopped:
            handle.send(signal.SIGCONT)
        until = time.monotonic() + RUNS_WITHIN_S
        while True:
            still = [handle.pid for handle in stopped if (facts := handle.facts()) is not None
                     and facts.row.state == "T"]
            if not still or time.monotonic() > until:
                return len(stopped) - len(still), still
            time.sleep(0.01)
