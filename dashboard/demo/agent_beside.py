"""The Procfile's agent: it waits for the hub on this machine and enrols itself. Write access to the
hub's folder is enough to enrol a node."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from gpudeck.system.child_processes import importable

from ..actions.hub_key import HubKey
from ..fleet.members import NewEnrolment
from ..nodes.enrolment import create
from ..nodes.store import NodeStore
from ..runtime.data_folder import open_folder, write_private
from ..state import HubState
from .supervisor import PACKAGE_PREFIX

POLL_EVERY_S = 0.2


def run_local_agent(hub: Path, agent: Path) -> NoReturn:
    while (url := _url(hub)) is None:
        time.sleep(POLL_EVERY_S)
    with contextlib.closing(HubState.open(hub)) as state:
        [(token, _)] = create(state.store(NodeStore), HubKey(hub).fingerprint, [NewEnrolment()],
                              "gpudeck up")
    open_folder(agent)
    token_file = agent / "agent.enrolment"
    write_private(token_file, f"{token.text}\n")
    os.execve(sys.executable, [sys.executable, "-P", "-m", f"{PACKAGE_PREFIX}agent", "--hub", url,
                               "--token-file", str(token_file), "--data", str(agent)],
              importable(__package__, os.environ))


def _url(hub: Path) -> str | None:
    """Return the URL of the hub that runs in this folder; None: none runs. A hub that was killed
    leaves its file behind, so its pid is checked."""
    try:
        hub_info = json.loads((hub / "hub.json").read_bytes())
        os.kill(hub_info["pid"], 0)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return None
    return str(hub_info["url"])
