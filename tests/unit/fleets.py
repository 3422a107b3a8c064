"""Fleets for tests, built from the messages that agents send."""

from collections.abc import Mapping, Sequence

from dashboard.fleet.fleet import Fleet, Node
from dashboard.fleet.task_table import NodeTasksCache, task_table
from dashboard.fleet.views import TaskView
from dashboard.fleet.visibility import ALL_READ, CommandLineVisibility
from gpudeck.contract.wire import (
    GPU_STATES,
    Frame,
    GpuFacts,
    Hello,
    Inventory,
    Slow,
    Task,
    Tasks,
    Use,
    pack,
)
from gpudeck.measures.metrics import COLUMN, SLOW_COLUMN, SLOW_WIDTH, WIDTH, Absence

Row = Mapping[str, float | Absence]

NOW = 1_000_000.0
EMPTY: Row = {"util_pct": 0.0, "mem_used_bytes": 0.0}  # in use by nobody
MONO = 500.0


def hello(node_id: str = "n1", stream: str = "s1", boot_id: str = "boot", host: str = "") -> Hello:
    return Hello((1,), bytes(32), bytes(64), node_id, host or f"{node_id}.example", boot_id, stream,
                 0, "0.1", "test")


def facts(node_id: str, index: int, name: str = "NVIDIA H100", mem: float | None = 80e9,
          power: float | None = 700.0) -> GpuFacts:
    return GpuFacts(f"GPU-{node_id}-{index}", index, name, mem_total_bytes=mem,
                    power_limit_w=power)


def frame(rows: Sequence[Row], seq: int = 1, taken_at: float = NOW,
          states: Sequence[str] = (), tasks: Tasks | None = None, generation: int = 1,
          slow: Sequence[Row] | None = None) -> Frame:
    """A row names what is there, or why not; what it does not name is unknown."""
    values, absent = _packed(rows, COLUMN, WIDTH)
    codes = bytes(GPU_STATES.index(state) for state in states or ["ok"] * len(rows))
    return Frame(seq, taken_at, 1.0, generation, values, absent, codes, tasks,
                 None if slow is None else Slow(*_packed(slow, SLOW_COLUMN, SLOW_WIDTH)))


def _packed(rows: Sequence[Row], columns: Mapping[str, int], width: int) -> tuple[bytes, bytes]:
    values, absent = [0.0] * (len(rows) * width), bytearray([Absence.UNKNOWN] * len(rows) * width)
    for at, row in enumerate(rows):
        for key, value in row.items():
            cell = at * width + columns[key]
            absent[cell] = value if isinstance(value, Absence) else Absence.PRESENT
            values[cell] = 0.0 if isinstance(value, Absence) else value
    return pack(values), bytes(absent)


def add_node(fleet: Fleet, node_id: str = "n1", gpus: int = 2, name: str = "NVIDIA H100",
             mono: float = MONO, mem: float | None = 80e9) -> Node:
    node = fleet.hello(hello(node_id), NOW, mono)
    fleet.inventory(node, Inventory(1, tuple(facts(node_id, at, name, mem) for at in range(gpus))))
    return node


def tasks(*on: tuple[str, int, str | None]) -> Tasks:
    """(task id, GPU, user)."""
    began = {task_id: Task(task_id, 1, 1, NOW, user, f"python {task_id}.py")
             for task_id, _, user in on}
    return Tasks(True, tuple(began.values()),
                 tuple(Use(task_id, gpu, 1e9, 10.0) for task_id, gpu, _ in on))


def task_views(fleet: Fleet, reads: CommandLineVisibility = ALL_READ, mono: float = MONO,
               cache: NodeTasksCache | None = None) -> list[TaskView]:
    """Return the Tasks of all nodes, as lists show them."""
    table = task_table(fleet, fleet.nodes.values(), cache or NodeTasksCache(), mono)
    return [*table.views(range(len(table)), reads)]
