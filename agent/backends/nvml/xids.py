"""Meaning of an Xid of NVIDIA's driver, and the MIG instance that it names. Pure."""

from collections.abc import Sequence

from msgspec import structs

from gpudeck.contract.wire import GpuFacts
from gpudeck.measures import xid

from ...readings import BackendEvent

TORN_DOWN = 45
ECHO = (f"Xid {TORN_DOWN}: a task's work was torn down; gpudeck has just ended a task on "
        "this node; no action needed")


def explain(event: BackendEvent, facts: Sequence[GpuFacts]) -> BackendEvent:
    """Add its words, and the name of the instance that it numbers. What is no Xid stays."""
    if event.kind != "xid" or event.text:
        return event
    code = int(event.numbers.get("xid", xid.UNKNOWN_CODE))
    return structs.replace(
        event, part_uuid=_instance(event, facts), text=xid.explain(code).sentence,
        echo=ECHO if code == TORN_DOWN else "")


def _instance(event: BackendEvent, facts: Sequence[GpuFacts]) -> str | None:
    gpu, compute = event.numbers.get("gpu_instance"), event.numbers.get("compute_instance")
    return None if gpu is None else next(
        (part.uuid for part in facts if part.parent_uuid == event.gpu_uuid
         and part.gpu_instance == gpu and compute in (None, part.compute_instance)), None)
