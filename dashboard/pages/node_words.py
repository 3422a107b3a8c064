"""Words about a node's agent. Pure."""

from typing import Any

from .words import amount, clock, plural

READER = {
    "starting": "starting", "ok": "reads", "hung": "the driver does not answer",
    "failed": "read error", "no_library": "no driver library", "no_driver": "no driver",
    "no_gpus": "no GPU"}
MOST_PENDING = 20  # so many messages wait in any agent's outbox
MIB = 2**20

Node = dict[str, Any]


def reader_words(node: Node) -> str | None:
    """Return `reads`, or what is wrong and what to do; None: the agent has not said."""
    reader = node["reader"]
    if reader is None:
        return None
    words = READER.get(reader["state"], reader["state"])
    return f"{words}: {reader['detail']}" if reader["detail"] else words


def reader_trouble(node: Node) -> str | None:
    reader = node["reader"]
    is_well = reader is None or (reader["state"] == "ok" and reader["detail"] == "")
    return None if is_well else reader_words(node)


def refused_words(node: Node, now: float, zone: str) -> str | None:
    """Return until when the hub refuses the node's messages, and why; None: it takes them."""
    refusal = node["refused"]
    if refusal is None:
        return None
    return f"Refused until {clock(refusal['until'], now, zone)}: {refusal['why']}"


def agent_words(node: Node) -> str:
    """Return the agent's version and cost, what waits in it, and what this hub does not support."""
    types = ", ".join(node["unknown_types"])
    newer = f"newer than this hub, which does not support {types}: upgrade the hub first"
    return " · ".join([node["agent_version"], *([newer] if types else []),
                       *_cost(node["cost"]), *_outbox(node)])


def _cost(cost: dict[str, Any] | None) -> list[str]:
    if cost is None:
        return []
    cpu, memory, read = cost["cpu_pct"], cost["memory_bytes"], cost["read_s"]
    return [*([] if cpu is None else [f"{amount(cpu, 1)} % CPU"]),
            *([] if memory is None else [f"{amount(memory / MIB)} MiB"]),
            *([] if read is None else [
                f"reads in {amount(read * 1000, 1 if read < 0.01 else 0)} ms"])]


def _outbox(node: Node) -> list[str]:
    pending, dropped = node["pending"], node["dropped"]
    size = None if node["cost"] is None else node["cost"]["outbox_bytes"]
    words = []
    if pending is not None and pending > MOST_PENDING:
        weight = "" if size is None else f" ({amount(size / MIB, 1)} MiB)"
        words.append(f"{plural(pending, 'message')} queued for the hub{weight}")
    if dropped:
        words.append(f"{plural(dropped, 'message')} lost")
    return words
