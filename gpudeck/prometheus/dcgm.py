"""The dialect of NVIDIA's dcgm-exporter: its names, units, help texts and labels. Pure.

Names and units as in its etc/default-counters.csv and DCGM's dcgm_fields.h, labels as in its
rendermetrics.go, so that dashboards and rules written for it work here unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpudeck import __version__
from gpudeck.contract.vendors import is_nvidia
from gpudeck.contract.wire import GpuFacts, Task, Use
from gpudeck.measures.metrics import COLUMNS, SLOW, Metric
from gpudeck.measures.throttled_time import VIOLATIONS
from gpudeck.prometheus.text import Kind, family, labels

NAN = float("nan")
KIB, MIB = 2.0**10, 2.0**20

FIELDS: tuple[Metric, ...] = tuple(metric for metric in COLUMNS + SLOW if metric.prometheus)
SENT, RECEIVED = "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"
OF_MEMORY = ("mem_used_bytes", "mem_reserved_bytes")
TOTAL = "DCGM_FI_DEV_FB_TOTAL"
FREE = "DCGM_FI_DEV_FB_FREE"
NVLINK = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
XID = "DCGM_FI_DEV_XID_ERRORS"
DRIVER = "DCGM_FI_DRIVER_VERSION"  # a label of all other metrics, there and here
NAMES = frozenset({field.prometheus for field in FIELDS} | {TOTAL, FREE, NVLINK, XID}
                  | {violation.prometheus for violation in VIOLATIONS})

Values = Sequence[float]  # one of each GPU, in our units; NaN: it is not there


@dataclass(frozen=True, slots=True)
class ExportedGpus:
    """GPUs to export. `parent`: the place of a MIG instance's board, or -1. `shares_memory`: with
    an instance before it."""

    labels: Sequence[str]
    parent: Sequence[int]
    shares_memory: Sequence[bool]
    mem_total_bytes: Values
    xid: Values  # the last recent one
    throttled_ns: Sequence[Values]  # of each of VIOLATIONS

    @property
    def is_split(self) -> bool:
        return any(at >= 0 for at in self.parent)


def gpu_labels(facts: GpuFacts, host: str, driver: str | None, board: GpuFacts | None,
               task: Task | None) -> str:
    """Format a GPU's labels. For a MIG instance, `gpu`, `UUID` and `modelName` are its board's, as
    there; `mig_uuid` is our own, for two compute instances of one GPU instance would else be the
    same to Prometheus. `task`: the one whose pod is named, where there is one."""
    whole = facts if board is None else board
    minor = whole.minor if whole.minor is not None else whole.index
    is_part = facts.parent_uuid is not None
    return labels({
        "gpu": str(facts.index), "UUID": facts.parent_uuid or facts.uuid,
        "pci_bus_id": facts.pci_bus_id,
        "device": f"nvidia{minor}" if is_nvidia(whole.uuid) else None, "modelName": whole.name,
        "GPU_I_PROFILE": facts.mig_profile if is_part else None,
        "GPU_I_ID": None if facts.gpu_instance is None else str(facts.gpu_instance),
        "Hostname": host, DRIVER: driver, "mig_uuid": facts.uuid if is_part else None,
        "container": None if task is None else task.container_name or task.container,
        "namespace": None if task is None else task.namespace,
        "pod": None if task is None else task.pod,
    })


def has_place(task: Task) -> bool:
    """Return whether it runs in a pod or a container."""
    return any(name is not None for name in (task.pod, task.container_name, task.container))


def same_place(tasks: Sequence[Task]) -> Task | None:
    """Return a task that stands for all of them; None: they run in several places, or in none."""
    places = {(task.namespace, task.pod, task.container_name or task.container) for task in tasks}
    return tasks[0] if len(places) == 1 and has_place(tasks[0]) else None


def shares_memory(gpus: Sequence[GpuFacts]) -> list[bool]:
    """Return for each GPU whether one before it is a part of the same GPU instance, whose memory
    both report."""
    instances: set[tuple[str, int]] = set()
    flags = []
    for facts in gpus:
        if facts.parent_uuid is None or facts.gpu_instance is None:
            flags.append(False)
            continue
        key = facts.parent_uuid, facts.gpu_instance
        flags.append(key in instances)
        instances.add(key)
    return flags


def once(gpus: ExportedGpus, key: str, values: Values) -> Values:
    """Blank values that a sum would count twice: what an instance reports, its board does not
    report as well, and of instances that share one memory the first reports it."""
    if not gpus.is_split:
        return values
    column = list(values)
    for place, parent in enumerate(gpus.parent):
        if parent < 0 or values[place] != values[place]:
            continue
        column[parent] = NAN
        if key in OF_MEMORY and gpus.shares_memory[place]:
            column[place] = NAN
    return column


def families(gpus: ExportedGpus, columns: Mapping[str, Any], names: frozenset[str] | None = None
             ) -> list[str]:
    """Format the families. `columns`: by metric key, lists or arrays of floats. `names`: of
    families; None: all."""
    def is_wanted(name: str) -> bool:
        return names is None or name in names

    texts = [_text(gpus, field, columns[field.key]) for field in FIELDS
             if is_wanted(field.prometheus) and field.key in columns]
    if is_wanted(FREE) and "mem_used_bytes" in columns:
        texts.append(_free(gpus, columns))
    if is_wanted(TOTAL):
        total = [value / MIB for value in once(gpus, "mem_used_bytes", gpus.mem_total_bytes)]
        texts.append(family(TOTAL, "gauge", "Framebuffer memory (in MiB).", gpus.labels, total))
    if is_wanted(NVLINK) and columns.keys() >= {SENT, RECEIVED}:
        texts.append(_nvlink(gpus, columns))
    if is_wanted(XID):
        texts.append(family(XID, "gauge", "Value of the last XID error encountered, for ten "
                            "minutes.", gpus.labels, gpus.xid))
    texts += [family(violation.prometheus, "counter", violation.help, gpus.labels,
                     once(gpus, violation.prometheus, values))
              for violation, values in zip(VIOLATIONS, gpus.throttled_ns, strict=True)
              if is_wanted(violation.prometheus)]
    return [text for text in texts if text]


def divisor(field: Metric) -> float:
    """Return the divisor from our unit to DCGM's."""
    if field.unit == "B":
        return MIB
    is_ratio = field.prometheus.startswith("DCGM_FI_PROF_") or field.prometheus.endswith("_ratio")
    return 100.0 if field.unit == "%" and is_ratio else 1.0


def _text(gpus: ExportedGpus, field: Metric, values: Any) -> str:
    column, by = once(gpus, field.key, _plain(values)), divisor(field)
    if field.unit == "J":  # whole millijoules, as in dcgm-exporter
        column = [float(round(value * 1_000)) if value == value else NAN for value in column]
    elif by != 1.0:
        column = [value / by for value in column]
    kind: Kind = "counter" if field.aggregate == "counter" else "gauge"
    return family(field.prometheus, kind, field.help, gpus.labels, column)


def _plain(values: Any) -> Values:
    plain: Values = values.tolist() if hasattr(values, "tolist") else values
    return plain


def _free(gpus: ExportedGpus, columns: Mapping[str, Any]) -> str:
    memory_used = _plain(columns["mem_used_bytes"])
    reserved = _plain(columns.get("mem_reserved_bytes", [NAN] * len(memory_used)))
    free = [max(0.0, total - in_use - (reserve if reserve == reserve else 0.0)) / MIB
            if total == total and in_use == in_use else NAN
            for total, in_use, reserve in zip(
                gpus.mem_total_bytes, memory_used, reserved, strict=True)]
    return family(FREE, "gauge", "Framebuffer memory free (in MiB).", gpus.labels,
                  once(gpus, "mem_used_bytes", free))


def _nvlink(gpus: ExportedGpus, columns: Mapping[str, Any]) -> str:
    """DCGM makes this field of the same counters of NVML: the KiB per second of both directions,
    divided by 1,000. dcgm-exporter calls it a counter, which it is not (its issue 417)."""
    traffic = [(transmitted + received) / KIB / 1_000 for transmitted, received in zip(
        _plain(columns[SENT]), _plain(columns[RECEIVED]), strict=True)]
    return family(NVLINK, "gauge", "Rate of data over all NVLinks, both directions together (in "
                  "1,000 KiB/s).", gpus.labels, once(gpus, SENT, traffic))


# -- gpudeck's own, of hub and agent alike


# Reported by a connected agent about itself, and on its own page too.
OF_AGENTS: tuple[tuple[str, Kind, str], ...] = (
    ("gpudeck_agent_reading_age_seconds", "gauge", "Age of the driver's last answer."),
    ("gpudeck_agent_pending_messages", "gauge", "Messages waiting for the hub."),
    ("gpudeck_agent_dropped_messages_total", "counter",
     "Messages dropped because the agent's outbox was full."),
)


def build_info() -> str:
    return family("gpudeck_build_info", "gauge", "1; its label is the version.",
                  [labels({"version": __version__})], [1.0])


def ours(of: Sequence[str], states: Sequence[str], tasks: Values, uses: Mapping[str, Use]
         ) -> Iterator[str]:
    """Yield gpudeck's own families. `tasks`: how many are on each GPU. `uses`: by their labels."""
    yield build_info()
    yield family("gpudeck_gpu_state", "gauge", "1: this GPU is ok, stale, lost, error or offline.",
                 [f'{label},state="{state}"' for label, state in zip(of, states, strict=True)],
                 [1.0] * len(of))
    yield family("gpudeck_gpu_tasks", "gauge", "Tasks on this GPU.", of, tasks)
    yield family("gpudeck_task_memory_bytes", "gauge", "GPU memory held by this task.",
                 [*uses], [NAN if use.mem_used_bytes is None else use.mem_used_bytes
                           for use in uses.values()])
    yield family("gpudeck_task_sm_ratio", "gauge",
                 "Share of the time in which this task had work on the SMs.",
                 [*uses], [NAN if use.sm_pct is None else use.sm_pct / 100
                           for use in uses.values()])


def task_labels(host: str, facts: GpuFacts, task: Task) -> str:
    """Format a task's labels; never the command line: it is not for everyone who may scrape."""
    return labels({
        "Hostname": host, "gpu": str(facts.index), "UUID": facts.parent_uuid or facts.uuid,
        "mig_uuid": facts.uuid if facts.parent_uuid is not None else None, "task": task.id,
        "user": task.user, "container": task.container_name or task.container,
        "namespace": task.namespace, "pod": task.pod, "slurm_job": task.slurm_job})
