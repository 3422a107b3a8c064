"""`gpudeck agent --pipe`: the agent of one notebook, its child, without a hub. It shows what the
terminal's `status` and `tasks` show, and acts as the terminal's `pause` and `end` do, on the tasks
of its own user only. It ends when its stdin does.
"""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from gpudeck.contract import notebook_pipe as pipe
from gpudeck.contract.action_table import IN_ROWS
from gpudeck.contract.action_views import CommandView
from gpudeck.contract.actions import ActionParams
from gpudeck.contract.message_limits import PID_MAX
from gpudeck.errors import CommandError
from gpudeck.system.process_cost import children_of

from ..actions.ceiling import foreign_pids
from ..actions.hold_files import driver_order, hold_files, holds, hub_holds
from ..actions.signals import make_room
from ..actions.standalone import StandaloneNode
from ..backends import SIMULATED, Backend, backend_named
from ..backends.simulation.keeper import JobKeeper
from ..backends.simulation.reader import parse_options
from ..limits.mps import LocalMpsDaemons
from ..reader.watchdog import ThreadedReaderProcess
from ..readings import OnDemandReading, Reading, with_slow
from ..runtime.worker import Worker
from ..settings import AgentSettings
from ..tasks.boot_id import boot_id
from ..tasks.name_cache import WorkloadNameCache
from ..tasks.task_table import TaskTable
from ..tasks.terminals import who_is_here
from ..telemetry.status_table import gpu_items, task_items
from .local_target import LocalTarget

FRESH_WITHIN_S = 5.0
PREVIEWS_MAX = 64
PIPE_BYTES = 65_536
LOOK_EVERY_S = 1.0
KEEP_EVERY_S = 0.25
SIMULATED_NODE = "n001"


@dataclass(frozen=True, slots=True)
class NotebookContext:
    backend: Backend
    options: str  # of the reader
    data: Path
    host: str
    ceiling: Path | None
    keeper: JobKeeper | None = None


def run_piped(settings: AgentSettings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a notebook's interrupt is for its cell
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Whatever a library prints must not land between two messages.
    out = os.dup(1)
    os.dup2(2, 1)
    make_room()
    with _context(settings) as context:
        agent = NotebookAgent(context, out, stop)
        try:
            _wait_until_stopped(stop, context.keeper)
        finally:
            agent.close()


def _wait_until_stopped(stop: threading.Event, keeper: JobKeeper | None) -> None:
    """Wait until stopped. A fork of the notebook may hold our stdin open: that our parent has gone
    counts as well."""
    parent = os.getppid()
    while not stop.is_set() and os.getppid() == parent:
        if keeper is not None:
            keeper.step(time.time())
        stop.wait(LOOK_EVERY_S if keeper is None else KEEP_EVERY_S)


@contextmanager
def _context(settings: AgentSettings) -> Iterator[NotebookContext]:
    backend = backend_named(settings.backend)
    if backend is not SIMULATED or parse_options(settings.simulate).world is not None:
        yield NotebookContext(backend, settings.reader_options, settings.data, settings.host,
                              settings.ceiling)
        return
    with _simulation(settings) as context:
        yield context


@contextmanager
def _simulation(settings: AgentSettings) -> Iterator[NotebookContext]:
    """Simulate with real processes and a separate audit log: the real one must not record play."""
    options = parse_options(settings.simulate)
    world = Path(tempfile.mkdtemp(prefix="gpudeck-simulated-"))
    keeper = JobKeeper(world, options.seed, [SIMULATED_NODE], options.gpus, options.profile)
    try:
        keeper.step(time.time())
        ceiling = settings.ceiling
        if ceiling is None:  # as in the demo: all that could be hit is made for it
            ceiling = world / "ceiling.toml"
            ceiling.write_text("kills_per_hour = 1000\npauses_per_hour = 1000\nroot_tasks = true\n")
        options_text = f"{settings.simulate},node={SIMULATED_NODE},world={world}".lstrip(",")
        yield NotebookContext(SIMULATED, options_text, world / "agent", "simulated", ceiling,
                              keeper)
    finally:
        keeper.close()
        shutil.rmtree(world, ignore_errors=True)


class NotebookAgent:
    """Agent with three threads beside the main one: one reads requests, one samples, one carries
    out actions."""

    def __init__(self, context: NotebookContext, out: int, stop: threading.Event) -> None:
        self._context = context
        self._kernel = os.getppid()
        self._unseen_why = foreign_pids(context.backend, context.ceiling)
        self._out = out
        self._stop = stop
        self._writing = threading.Lock()
        self._tasks = TaskTable(boot_id(), names=WorkloadNameCache(),
                                clients=LocalMpsDaemons().clients)
        self._before: Reading | None = None
        self._local: StandaloneNode | None = None
        self._targets: OrderedDict[str, LocalTarget] = OrderedDict()  # by the request for a preview
        self._marks, self._orders = Worker("marks"), Worker("looks", PREVIEWS_MAX)
        self._news = threading.Event()
        self._source = ThreadedReaderProcess(context.backend.name, context.options,
                                             partial(driver_order, context.data), self._news.set)
        for run in (self._sample, self._read_requests):
            threading.Thread(target=run, name=run.__name__, daemon=True).start()

    def close(self) -> None:
        """Close all. An action in flight is left as it is; the audit log says what is known of
        it."""
        for worker in (self._marks, self._orders):
            worker.close()
        if self._local is not None:
            self._local.close()
        self._source.close()

    def _send(self, message: pipe.FromAgent) -> None:
        body = memoryview(pipe.packed(message))
        try:
            with self._writing:
                while body:
                    body = body[os.write(self._out, body):]
        except OSError:  # the notebook has gone
            self._stop.set()

    # -- samples

    def _sample(self) -> None:
        while not self._stop.is_set():
            self._news.wait(LOOK_EVERY_S)
            is_news = self._news.is_set()
            self._news.clear()
            reading = self._source.latest()
            if reading is not None:
                self._before = reading = with_slow(reading, self._before)
                self._send(self._snapshot(reading))
            elif is_news or self._source.state != "ok":
                self._send(self._empty_snapshot())

    def _snapshot(self, reading: Reading) -> pipe.PipeSnapshot:
        tasks = None
        if reading.processes is not None and not self._unseen_why:
            gpu_tasks, kernel_pids = self._tasks.describe(reading.processes), self._kernel_pids()
            tasks = tuple(
                {**item, "mine": self._is_mine(item), "kernel": item["pid"] in kernel_pids}
                for item in task_items(gpu_tasks, self._context.host))
        return msgspec.structs.replace(
            self._empty_snapshot(), at=reading.taken_at, reader="ok", detail=reading.detail,
            driver_version=reading.driver_version,
            gpus=tuple(gpu_items(reading, self._context.host)), tasks=tasks)

    def _empty_snapshot(self) -> pipe.PipeSnapshot:
        total, available = _ram()
        return pipe.PipeSnapshot(
            time.time(), self._source.state, self._source.detail, self._context.host,
            ram_total_bytes=total, ram_available_bytes=available,
            holds=(*hub_holds(), *holds(hold_files(self._context.data))),
            is_simulated=self._context.backend is SIMULATED, unseen=self._unseen_why)

    def _kernel_pids(self) -> frozenset[int]:
        """Return the kernel's descendants, in whatever session, without this agent and its
        children."""
        own_pid = os.getpid()
        return frozenset({self._kernel, *children_of(self._kernel)}
                         - {own_pid, *children_of(own_pid)})

    def _is_mine(self, item: pipe.Item) -> bool:
        if self._context.backend is not SIMULATED:
            return bool(item["owner"].get("uid") == os.getuid())
        return self._context.keeper is not None and item["pid"] <= PID_MAX

    # -- requests

    def _read_requests(self) -> None:
        pieces = pipe.PipeDecoder()
        try:
            while data := os.read(0, PIPE_BYTES):
                for message in pieces.from_notebook(data):
                    self._handle(message)
        except (OSError, msgspec.MsgspecError):
            pass
        self._stop.set()

    def _handle(self, message: pipe.FromNotebook) -> None:
        match message:
            case pipe.PipeMarkRequest():
                self._marks.put(lambda: self._mark(message.mark_id))
            case pipe.PipePreviewRequest():
                if not self._orders.put(lambda: self._answer(message)):
                    self._send(pipe.PipeFailure(message.ask_id,
                                                "too many requests at once; try again"))
            case pipe.PipeOrderRequest():
                self._orders.put(lambda: self._answer(message))

    def _mark(self, mark_id: int) -> None:
        fresh = self._source.fresh(FRESH_WITHIN_S)
        at = time.time()  # the counters of energy are read last
        self._send(pipe.PipeMarkReply(mark_id, at, is_answered=False) if fresh is None
                   else pipe.PipeMarkReply(mark_id, at, fresh.energy_j, self._kernel_memory(fresh)))

    def _kernel_memory(self, fresh: OnDemandReading) -> dict[str, dict[int, float | None]]:
        memory: dict[str, dict[int, float | None]] = {}
        kernel_pids = frozenset() if self._unseen_why else self._kernel_pids()
        for process in fresh.processes:
            if process.pid in kernel_pids:
                memory.setdefault(process.gpu_uuid, {})[process.pid] = process.mem_used_bytes
        return memory

    # -- actions

    def _answer(self, message: pipe.PipePreviewRequest | pipe.PipeOrderRequest) -> None:
        ask_id = message.ask_id
        try:
            if isinstance(message, pipe.PipePreviewRequest):
                self._preview(message)
            else:
                self._order(message)
        except CommandError as why:
            self._send(pipe.PipeFailure(ask_id, str(why)))
        except Exception as error:  # the one who waits for it must learn of it
            self._send(pipe.PipeFailure(ask_id, f"the agent failed on this request: {error!r}"))

    def _preview(self, request: pipe.PipePreviewRequest) -> None:
        if request.action not in IN_ROWS:
            raise CommandError(f"{request.action!r} cannot be asked from a notebook")
        target = LocalTarget(self._here(), self._context.host,
                             f"{who_is_here()}, in a notebook"[:128])
        self._targets[request.ask_id] = target
        while len(self._targets) > PREVIEWS_MAX:
            self._targets.popitem(last=False)
        params = msgspec.to_builtins(msgspec.convert(request.params, ActionParams))
        task_ids = target.choose([request.task_id], None, None)
        view = target.preview(request.action, task_ids, params, False)
        if foreign := [process for item in view.items for process in item.processes
                       if not self._is_own_process(process.pid)]:
            raise CommandError(f"process {foreign[0].pid} belongs to {foreign[0].user}; from a "
                               "notebook only your own tasks can be acted on")
        self._send(pipe.PipePreviewReply(request.ask_id, view))

    def _is_own_process(self, pid: int) -> bool:
        try:
            return os.stat(f"/proc/{pid}").st_uid == os.getuid()
        except OSError:  # it has ended; the act finds out
            return True

    def _order(self, request: pipe.PipeOrderRequest) -> None:
        target = self._targets.pop(request.ask_id, None)
        if target is None:
            raise CommandError("this was not previewed, or the preview was used already; preview "
                               "again")
        if not request.reason.strip():
            raise CommandError("give a reason: it goes into the audit log")
        result = target.order("here", request.reason)
        self._send(pipe.PipeOrderReply(request.ask_id, result.items))
        threading.Thread(target=self._follow, args=(request.ask_id, target, result.items),
                         daemon=True).start()

    def _follow(self, ask_id: str, target: LocalTarget, commands: tuple[CommandView, ...]) -> None:
        for command in target.follow(commands):
            self._send(pipe.PipeCommandUpdate(ask_id, command))

    def _here(self) -> StandaloneNode:
        """Return the node, which is opened when something is to be done: to look needs no writable
        folder."""
        if self._local is None:
            context = self._context
            try:
                context.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise CommandError(f"cannot write {context.data}: {error.strerror}; without an "
                                   "audit log nothing is done. Set GPUDECK_DATA to another "
                                   "folder") from error
            self._local = StandaloneNode(
                context.data, context.backend.name, ceiling=context.ceiling, source=self._source,
                facts=() if self._before is None else self._before.facts).__enter__()
        return self._local


def _ram() -> tuple[int | None, int | None]:
    """Return total and available RAM of this machine; what a container may use of it is not known
    here."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in
               (line.partition(":") for line in lines)}
        return kib["MemTotal"] * 1_024, kib["MemAvailable"] * 1_024
    except (OSError, ValueError, KeyError, IndexError):
        return None, None
