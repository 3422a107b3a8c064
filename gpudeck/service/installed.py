"""Location of this machine's agent or hub, for commands that only read."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpudeck.service.units import ROLES
from gpudeck.settings import state_folder


def state_here(program: str, env: Mapping[str, str]) -> Path:
    """Return the state folder: for root the installed service's; for others their own if they have
    run one. A folder alone is also left by a command that acted there."""
    own = state_folder(program, env)
    if env.get("XDG_STATE_HOME") or not is_installed(program):
        return own
    has_run = (own / f"{program}.key").exists()
    return own if os.geteuid() != 0 and has_run else Path(ROLES[program].state)


def is_installed(program: str) -> bool:
    return Path(ROLES[program].state).is_dir()


def is_of_service(program: str, data: Path) -> bool:
    return data == Path(ROLES[program].state)
