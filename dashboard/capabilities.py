"""The capabilities of the hub: one row each, the name of a package.

Each package has a `wiring.py` with `build(core)`, which makes its parts and says what the hub does
with them (composition.py), and `ROUTES` if it serves REST. To take a capability out, delete
its folder and its row.
"""

from importlib import import_module
from types import ModuleType

STORE = "store"  # the module with the MIGRATIONS of its tables

# In the order of building: a part is there for all capabilities below the one that makes it.
CAPABILITIES = {
    "web": "",
    "audit": STORE,
    "access": STORE,
    "history": "",
    "fleet": "",
    "nodes": STORE,
    "sites": "",
    "mirror": "",
    "imports": "",
    "actions": STORE,
    "quotas": STORE,
    "jobs": STORE,
    "pool": STORE,
    "insight": "",
    "alerts": STORE,
    "automation": STORE,
    "notifications": STORE,
    "live": "",
    "heartbeat": "",
    "openapi": "",
    "prometheus": "",
    "pages": "",
}


def wiring_of(name: str) -> ModuleType:
    return import_module(f".{name}.wiring", __package__)


def migrations() -> dict[int, str]:
    """Return the steps of the state's tables, by the version that each leads to. It imports stores
    alone: `gpudeck user` and its like need no more."""
    steps: dict[int, str] = {}
    for name, module in CAPABILITIES.items():
        own: dict[int, str] = (
            import_module(f".{name}.{module}", __package__).MIGRATIONS if module else {})
        if taken := steps.keys() & own.keys():
            raise RuntimeError(f"{name}: version {min(taken)} of the state is another capability's")
        steps |= own
    return steps
