"""Children that end when their parent does, however the parent ends. Linux."""

import ctypes
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def tied_to_me() -> Callable[[], None]:
    """Return a `preexec_fn` for Popen: the kernel kills the child when the *thread* that starts it
    ends, so start such children from the main thread only."""
    prctl, parent = _prctl(), os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl took effect
            os._exit(1)

    return tie


def importable(package: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for a child that runs `-m` a module of `package`: in a bare checkout, where it
    is `agent` and not `gpudeck.agent`, only the checkout's root on the path makes it importable."""
    child_env = dict(env)
    if not (package or "").startswith("gpudeck."):
        root = str(Path(__file__).resolve().parents[2])
        child_env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    return child_env


def without_tokens(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("GPUDECK_TOKEN")}


def adopt_orphans() -> None:
    """Make descendants whose own parent dies our children, so that we can end them."""
    _prctl()(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of_mine() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        return [int(pid) for pid in file.read().split()]


def _prctl() -> "ctypes._NamedFuncPointer":
    return ctypes.CDLL(None, use_errno=True).prctl
