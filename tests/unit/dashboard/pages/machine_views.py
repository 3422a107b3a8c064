"""A GPU and a node as the hub answers them, for tests of their panels."""

from typing import Any

from dashboard.fleet.node_parts import GpuFactsView

Item = dict[str, Any]
NOW = 1_796_000_000.0
FACTS = dict.fromkeys(GpuFactsView.__struct_fields__)


def a_gpu(index: int = 0, **fields: Any) -> Item:
    """Return a GPU. `fields`: also of its facts and its values."""
    facts = FACTS | {"power_limit_min_w": 200.0, "power_limit_max_w": 700.0,
                     "power_limit_default_w": 700.0, "power_limit_w": 700.0}
    gpu: Item = {"uuid": f"GPU-{index}", "node": "id-n1", "host": "n1", "index": index,
                 "place": str(index), "name": "H100", "values": {}, "missing": {}, "tasks": []}
    return gpu | fields | {"facts": facts | fields.get("facts", {})}


def a_node(**fields: Any) -> Item:
    return {"id": "id-n1", "host": "n1", "state": "live", "driver_version": "550.54",
            "reader": None,
            "agent_version": "0.1.0", "unknown_types": [], "cost": None, "pending": None,
            "dropped": None, "platform": "Linux", "holds": [], "links": [],
            "host_load": None, **fields}


def a_limit(**fields: Any) -> Item:
    return {"gpu_uuid": "GPU-0", "what": "power", "wanted": [333.0], "by": "ann",
            "reason": "the room is hot", "ends_at": NOW + 3_600, "state": "in_force",
            "words": "read back: 333 W", **fields}


def limits(**fields: Any) -> list[Item]:
    return [{"trouble": "", "unread": "", "leases": [], "modes": [], "layouts": [], "memory": [],
             **fields}]


def a_repair(**fields: Any) -> Item:
    return {"gpu": "GPU-0", "index": 0, "state": "drained", "says": "drained", "by": "ann",
            "reason": "fan noise", "since": NOW - 60, "until": None, "is_overdue": False,
            "seen": "", "may": ["reset", "diagnose", "return"], **fields}


def a_client(**fields: Any) -> Item:
    return {"pid": 8, "user": "ann", "command": "python3 serve.py", "task_id": "b-8-1",
            "pct": 100.0, **fields}


def a_daemon(*clients: Item, **fields: Any) -> Item:
    servers = [{"pid": 7, "user": "root", "status": "ACTIVE", "pct": 30.0,
                "memory": [[0, "2G"]], "clients": [*clients]}] if clients else []
    return {"pipes": "/tmp/mps", "user": "root", "is_alive": True, "trouble": "",
            "default_pct": 100.0, "default_priority": 0, "default_memory": [],
            "servers": servers, **fields}


def mps(*daemons: Item, **fields: Any) -> Item:
    return {"trouble": "", "daemons": [*daemons], "findings": [], **fields}
