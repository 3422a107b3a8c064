"""Sources of what `top` shows, each read on its own thread. The one that reads this machine's
driver is in local_source.py, so that `top --hub` does not load it."""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudeck.errors import CommandError
from gpudeck.words.actions import many

from ..settings import ConnectionSettings
from .model import METRICS, Item, QueueRow, TopModel, gpu_rows, job_rows

if TYPE_CHECKING:
    from gpudeck.client.hub import Client
    from gpudeck.contract.pool_messages import PoolShown
    from gpudeck.pool.connection import PoolConnection

    from ..cli.actions import ActionTarget

QUEUE_SHOWN = 20
WELL = ("healthy", "maintenance")
HUB_EVERY_S = 1.0
HUB_SHARE = 4.0  # a hub that takes long to answer is asked less often
POOL_EVERY_S, POOL_WITHIN_S = 2.0, 1.0


class TopSource(ABC):
    """`model` is the newest picture; `wake` is called when there is one, on a thread."""

    def __init__(self, reach: ConnectionSettings, title: str) -> None:
        self.reach = reach
        self.model = TopModel(title, reach.hub is not None)
        self.wake: Callable[[], None] = lambda: None
        self._news = threading.Event()
        self._is_closed = False
        self._filter, self._is_mine = "", False
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show_only(self, filter: str, is_mine: bool) -> None:
        self._filter, self._is_mine = filter, is_mine
        self._news.set()

    @abstractmethod
    def target(self) -> "AbstractContextManager[ActionTarget]":
        """Return the target of actions, for use while it is entered."""

    @abstractmethod
    def read_model(self) -> TopModel | None:
        """Return the newest picture. None: there is none yet. Raises CommandError."""

    @abstractmethod
    def wait(self) -> None: ...

    def close(self) -> None:
        self._is_closed = True
        self._news.set()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                model = self.read_model()
            except CommandError as error:
                model = replace(self.model, trouble=str(error))
            except Exception as error:  # a person would look at a picture that never changes
                model = replace(self.model, trouble=f"{type(error).__name__}: {error}")
            if model is not None:
                self.model = model
                self.wake()
            self.wait()


class PoolPoller:
    """Poller of this machine's agent for its pool, if one runs that has a pool."""

    def __init__(self) -> None:
        self._connection: PoolConnection | None = None
        self._pool: PoolShown | None = None
        self._at = -POOL_EVERY_S

    def newest(self) -> "PoolShown | None":
        if time.monotonic() - self._at < POOL_EVERY_S:
            return self._pool
        self._at = time.monotonic()
        from gpudeck.contract.pool_messages import PoolShown, ShowPool
        from gpudeck.pool.connection import PoolConnection

        try:
            if self._connection is None:
                self._connection = PoolConnection(os.environ)
            self._connection.send(ShowPool())
            reply = self._connection.receive(POOL_WITHIN_S)
            self._pool = reply if isinstance(reply, PoolShown) else None
        except CommandError:
            self._pool, self._connection = None, None
        return self._pool


def leases_of(pool: "PoolShown | None") -> dict[str, str]:
    return {} if pool is None else {
        uuid: lease.owner for lease in pool.held for uuid in lease.uuids}


def queue_of(pool: "PoolShown | None") -> tuple[QueueRow, ...]:
    return () if pool is None else tuple(
        QueueRow(claim.place, claim.owner, claim.asks, claim.why) for claim in pool.waiting)


def models_of(gpus: list[Item]) -> str:
    names = sorted({str(gpu["name"]) for gpu in gpus})
    short = ", ".join(name.removeprefix("NVIDIA ") for name in names[:2]) + (
        f" and {len(names) - 2} more" if len(names) > 2 else "")
    return short if gpus else ""


def host_words() -> str:
    """Return load and memory of this machine; what it does not tell is left out."""
    words = []
    with suppress(OSError):
        words.append(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count() or '?'} CPUs")
    with suppress(OSError, KeyError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        kib = {name: int(rest.split()[0])
               for name, _, rest in (line.partition(":") for line in file)}
        total, free = kib["MemTotal"] / 2**20, kib["MemAvailable"] / 2**20
        words.append(f"RAM {total - free:.0f} of {total:.0f} GiB")
    return f"HOST  {'   '.join(words)}" if words else ""


class HubSource(TopSource):
    def __init__(self, reach: ConnectionSettings) -> None:
        super().__init__(reach, str(reach.hub))
        self._client: Client = reach.client()
        self._took_s = 0.0

    @contextmanager
    def target(self) -> "Iterator[ActionTarget]":
        from ..cli.targets import HubTarget

        yield HubTarget(self.reach.client(), str(self.reach.hub))

    def wait(self) -> None:
        self._news.wait(max(HUB_EVERY_S, HUB_SHARE * self._took_s))
        self._news.clear()

    def read_model(self) -> TopModel:
        began = time.monotonic()
        filter = self._whole_filter()
        gpus = self._client.gpus(filter, METRICS)
        tasks = self._client.tasks(filter)
        nodes = self._client.nodes()
        leases = {uuid: str(lease["owner"]) for lease in self._client.hub.all("leases")
                  for uuid in lease["gpus"]}
        queue = self._client.hub.items("claims", limit=str(QUEUE_SHOWN))
        self._took_s = time.monotonic() - began
        rows = gpu_rows(gpus, tasks, leases)
        ill = sum(node["health"] is not None and node["health"]["word"] not in WELL
                  for node in nodes)
        held = sum(bool(node.get("holds")) for node in nodes)
        notes = ([f"STOPPED, no actions on {held} of {len(nodes)} nodes"] if held else []) + (
            [f"{ill} of {len(nodes)} nodes are not healthy"] if ill else [])
        return TopModel(
            "  ".join((many(len(nodes), "node"), many(len(gpus), "GPU"))), True, rows,
            job_rows(tasks, rows),
            tuple(QueueRow(claim["place"], claim["owner"], claim["asks"], claim["why"])
                  for claim in queue),
            f"{models_of(gpus)}  {self.reach.hub}", "", tuple(notes), "", time.time())

    def _whole_filter(self) -> str:
        if not self._is_mine:
            return self._filter
        names = self._client.me()["unix_names"] or [this_user()]
        mine = " | ".join(f'user:"{name}"' for name in names)
        return f"({self._filter}) & ({mine})" if self._filter else mine


def this_user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
