"""Shared parts of `demo` and `up`: a locked data folder, and a hub as a process."""

import contextlib
import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from gpudeck.client.hub import Client, Item
from gpudeck.contract.quota import Quota
from gpudeck.errors import CommandError, ExitCode

from ..access.passwords import hash_password
from ..access.policy import EVERYTHING, Role, Scope
from ..access.store import AccountsStore, User
from ..actions.hub_key import HubKey
from ..alerts.core.rule import Rule
from ..alerts.store import AlertsStore
from ..fleet.members import NewEnrolment
from ..nodes.enrolment import create
from ..nodes.store import NodeStore
from ..quotas.store import QuotasStore
from ..runtime.data_folder import open_folder, secret, write_private
from ..state import HubState
from .supervisor import SupervisedProcess

# Checked here, although only the hub's process needs them: without the extra, `gpudeck` then says
# at once which install brings it.
for module_name in ("dash", "gevent"):
    if find_spec(module_name) is None:
        raise ModuleNotFoundError(f"no module named {module_name!r}", name=module_name)

ASK_WITHIN_S = 2.0

__all__ = ["RunningHub", "SupervisedHub", "claim", "free_port", "open_hub", "write_private"]


@dataclass(frozen=True, slots=True)
class RunningHub:
    """The running hub, as it describes itself in hub.json."""

    url: str
    sign_in_url: str
    pid: int


class SupervisedHub:
    """A hub run as a process. `admin`: the user whom the displayed link signs in without a form."""

    def __init__(self, program: str, data: Path, port: int, log: Path,
                 admin: str | None = None, flags: Sequence[str] = (),
                 module: str = "dashboard") -> None:
        self.data = data
        self._program = program
        self._admin = admin
        self._links: dict[int, str] = {}  # pid of the hub -> the link made for its start
        self.url = f"http://127.0.0.1:{port}"
        self.api_token = secret(data / "api.token")
        self.part = SupervisedProcess("hub", module,
                                      ["--bind", f"127.0.0.1:{port}", "--data", str(data), *flags],
                                      log)

    def enrol(self, places: Mapping[Path, Sequence[str | None]]) -> None:
        """Create an enrolment for each host (None: any) and write the tokens into its file, one per
        line. Called before the hub runs, so that nobody has to wait for it."""
        open_folder(self.data)
        with contextlib.closing(HubState.open(self.data)) as state:
            enrolments = create(state.store(NodeStore), HubKey(self.data).fingerprint,
                                [NewEnrolment(host) for hosts in places.values() for host in hosts],
                                f"gpudeck {self._program}")
        tokens = iter(token.text for token, _ in enrolments)
        for file, hosts in places.items():
            write_private(file, "".join(f"{next(tokens)}\n" for _ in hosts))

    def running(self) -> RunningHub | None:
        """Return the running hub; None: it is not ready, or not ready again after a restart."""
        try:
            hub_info = json.loads((self.data / "hub.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        if hub_info["pid"] != self.part.pid:
            return None
        return RunningHub(hub_info["url"], self._link(hub_info), hub_info["pid"])

    def _link(self, hub_info: dict[str, Any]) -> str:
        if self._admin is None:
            return str(hub_info["sign_in_url"])
        pid = hub_info["pid"]
        if pid not in self._links:
            with contextlib.closing(HubState.open(self.data)) as state:
                code = state.store(AccountsStore).add_code(self._admin, time.time())
            self._links = {pid: f"{hub_info['url']}/sign-in?code={code}"}
        return self._links[pid]

    def add_admin(self, unix_name: str) -> str:
        """Add the admin and return the password. It is new at each start, because the folder only
        has its hash."""
        assert self._admin is not None
        open_folder(self.data)
        with contextlib.closing(HubState.open(self.data)) as state:
            password = secrets.token_urlsafe(12)
            hashed = hash_password(password)
            if any(user.name == self._admin for user in state.store(AccountsStore).users()):
                state.store(AccountsStore).change_user(self._admin, password=hashed)
            else:
                state.store(AccountsStore).add_user(User(
                    self._admin, Role.ADMIN, Scope((EVERYTHING,), (unix_name,)), hashed,
                    time.time()))
        return password

    def seed(self, quota: Quota, rules: Iterable[Rule]) -> None:
        """Store the quota and the rules if the hub never had any. Called before the hub runs."""
        open_folder(self.data)
        with contextlib.closing(HubState.open(self.data)) as state:
            if state.store(QuotasStore).generation() == 0:
                state.store(QuotasStore).put(quota, f"gpudeck {self._program}", time.time())
            if not state.store(AlertsStore).has_any_rule():
                for rule in rules:
                    state.store(AlertsStore).put_rule(rule, f"gpudeck {self._program}", time.time())

    def nodes(self) -> list[Item] | None:
        """Return the nodes; None: the hub does not answer now."""
        return None if self.running() is None else self._ask(Client.nodes)

    def has_values(self, host: str) -> bool:
        """Tell whether the node's GPUs have current values: a node that has just connected may send
        its backlog before its first live Frame."""
        states = {gpu["state"] for gpu in self._gpus(host)}
        return bool(states) and "stale" not in states

    def first_gpu(self) -> str | None:
        """Return the UUID of a GPU for an example that can be pasted; None: there is none, or the
        hub does not answer now."""
        gpus = self._gpus("n001")
        return str(gpus[0]["uuid"]) if gpus else None

    def _gpus(self, host: str) -> list[Item]:
        return self._ask(lambda client: client.gpus(f"node:{host}")) or []

    def _ask(self, question: Callable[[Client], list[Item]]) -> list[Item] | None:
        """Return the hub's answer; None: there is none in time. On a busy machine a hub may need
        longer, and it comes to an end only when its process does."""
        try:
            return question(Client(self.url, self.api_token, ASK_WITHIN_S))
        except CommandError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            return None


def open_hub(program: str, data: Path, port: int, admin: str | None = None,
             flags: Sequence[str] = (), module: str = "dashboard") -> SupervisedHub:
    _make(data)
    return SupervisedHub(program, data, free_port(port), data.parent / "hub.log", admin, flags,
                         module)


def free_port(port: int) -> int:
    """Return the port, or a free one for 0. It is chosen here, because the hub must come back on
    the same port after a restart."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"cannot listen on 127.0.0.1:{port}: {os.strerror(error.errno or 0).lower()}; "
                "choose another with --port", ExitCode.CANNOT_START,
            ) from error
        bound_port: int = probe.getsockname()[1]
        return bound_port


@contextlib.contextmanager
def claim(data: Path, program: str) -> Iterator[None]:
    """Lock the folder while we run. The kernel releases the lock however the process ends."""
    _make(data)
    with _open(data / f"{program}.lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another `gpudeck {program}` uses {data}; stop it, or choose another folder "
                "with --data", ExitCode.CANNOT_START,
            ) from None
        yield


def _open(path: Path) -> IO[str]:
    try:
        return open(path, "a")
    except OSError as error:
        raise _cannot_write(path.parent, error) from error


def _make(data: Path) -> None:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(data, error) from error


def _cannot_write(data: Path, error: OSError) -> CommandError:
    return CommandError(f"cannot write {data}: {error.strerror}; choose another folder with --data",
                        ExitCode.CANNOT_START)
