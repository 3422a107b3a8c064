"""The Procfile's agent: it waits for the hub that runs beside it on this machine, and joins it by
itself. Write access to the hub's folder is enough to enrol a node."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from gpudeck.child_processes import importable

from ..actions.hub_key import HubKey
from ..fleet.members import NewEnrolment
from ..nodes.enrolment import create
from ..runtime.data_folder import open_folder, write_private
from ..state import HubState
from .supervisor import BESIDE

LOOK_EVERY_S = 0.2


def run_agent_beside(hub: Path, agent: Path) -> NoReturn:
    while (url := _url(hub)) is None:
        time.sleep(LOOK_EVERY_S)
    with contextlib.closing(HubState.open(hub)) as state:
        [(token, _)] = create(state.registry, HubKey(hub).fingerprint, [NewEnrolment()],
                              "gpudeck up")
    open_folder(agent)
    place = agent / "agent.enrolment"
    write_private(place, f"{token.text}\n")
    os.execve(sys.executable, [sys.executable, "-P", "-m", f"{BESIDE}agent", "--hub", url,
                               "--token-file", str(place), "--data", str(agent)],
              importable(__package__, os.environ))


def _url(hub: Path) -> str | None:
    """None: none runs there. One that was killed leaves its word behind."""
    try:
        told = json.loads((hub / "hub.json").read_bytes())
        os.kill(told["pid"], 0)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return None
    return str(told["url"])
