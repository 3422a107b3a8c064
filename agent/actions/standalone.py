"""Actions that no hub has ordered, by the same preview, guard, journal and executor: from the
node's own terminal, and notifications of its quotas while it has no hub.

They carry epoch 0, which no hub has, and are recorded in this node's own Audit. A terminal may run
beside the agent, on the same data folder: the lock lets one act at a time, and both write one
journal.
"""

import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    PREVIEW_LASTS_S,
    ActionParams,
    Command,
    CommandActor,
    Preview,
    Refusal,
    RefusalCode,
    Reply,
)
from gpudeck.contract.ladder import OutcomeKind
from gpudeck.contract.limits import GpuDiagnosis, GpuReset, MigLayout, TimeSlice
from gpudeck.contract.wire import GpuFacts, Look, Task
from gpudeck.errors import CommandError, ExitCode

from ..backends import backend_named
from ..journal.facts import Fact
from ..journal.store import ActionJournal, ActionStore, JournalError
from ..limits.mps import LocalMpsDaemons
from ..reader.watchdog import ReaderProcess, ThreadedReaderProcess
from ..readings import Reading
from ..runtime.action_lock import ActionLock
from ..schedulers import Schedulers
from ..slurm.programs import SlurmPrograms
from ..tasks.boot_id import boot_id
from ..telemetry.recent_tasks import RecentTasks
from .context import ActionGuards, NodeContext, open_context
from .execute import ActionExecutor, never_recalled
from .hold_files import HUB_FILE, driver_order, hold_files, holds, hub_holds
from .kinds.execution import ActionTimeouts
from .preview import preview
from .replies import first_reply, later_reply
from .signals import make_room

READY_WITHIN_S = 30.0
# These may be different in a while; all other refusals stay.
TRANSIENT: frozenset[RefusalCode] = frozenset((
    "hold", "busy", "budget", "young", "unreadable", "journal", "stale_preview"))
LOCK_WITHIN_S = 5.0
NODE = "local"  # there is no hub that could tell it from another


class StandaloneNode:
    """`with StandaloneNode(data) as node: node.act(node.preview("end", task_id), "why", "ada")`.

    A Preview with refusals is not acted on. Raises CommandError where nothing can be read."""

    def __init__(
        self, data: Path, backend: str = "auto", simulate: str = "", ceiling: Path | None = None,
        timeouts: ActionTimeouts | None = None, source: ReaderProcess | None = None,
        schedulers: Schedulers | None = None, facts: Iterable[GpuFacts] = (),
        hub_file: Path = HUB_FILE,
    ) -> None:
        """Open the node. `source`: somebody else's, who closes it, and takes its readings before
        they are seen here: `facts` are of one of those. `schedulers` None: Slurm, by its
        programs."""
        make_room()
        self._files = hold_files(data)
        self._hub_file = hub_file
        self._store = ActionStore(data / "acts.db")
        self._journal = ActionJournal(self._store)
        self._lock = ActionLock(data)
        self._timeouts = timeouts or ActionTimeouts()
        self._is_own_source = source is None
        chosen_backend = backend_named(backend)
        self._source = source or ThreadedReaderProcess(
            chosen_backend.name, simulate, partial(driver_order, data), lambda: None)
        self._context = open_context(
            node_id=NODE, boot_id=boot_id(), backend=chosen_backend, options=simulate, data=data,
            source=self._source, recent=RecentTasks(), mps=LocalMpsDaemons(),
            journal=self._journal, is_shared=True, driver=chosen_backend.driver_version,
            schedulers=schedulers or Schedulers(SlurmPrograms()),
            guards=ActionGuards(ceiling, self.holds, self._journal.begun_since))
        self._context.tasks.recent.set_facts(facts)

    def __enter__(self) -> "StandaloneNode":
        try:
            self._ready()
            self._journal.audit.open()
        except JournalError as why:
            self.close()
            raise CommandError(str(why), ExitCode.CANNOT_START) from why
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._is_own_source:
            self._source.close()
        self._store.close()

    def tasks(self) -> list[Task]:
        snapshot = self._context.tasks.find()
        return [] if snapshot is None else [
            *{entry.task.id: entry.task for entry in snapshot.gpu_tasks}.values()]

    def readings(self, within_s: float) -> Iterator[Reading]:
        """Yield all that come in that time, and the next one in any case if it comes at all."""
        until, ready_until = time.monotonic() + within_s, time.monotonic() + READY_WITHIN_S
        is_any = False
        while time.monotonic() < (until if is_any else ready_until):
            if (reading := self._source.latest()) is not None:
                is_any = True
                yield reading
            time.sleep(0.05)

    def holds(self) -> tuple[str, ...]:
        """Return who holds all actions here: files, and the hub as the agent has kept it, in its
        journal or, for a user to whom that is closed, in a file."""
        try:
            hub = self._journal.fact(Fact.HUB_HOLD)
        except JournalError as why:
            return (str(why),)
        return (*(hub_holds(self._hub_file) if hub is None else (hub,)), *holds(self._files))

    def preview(
        self, action: ShownAction, task_id: str, params: ActionParams | None = None
    ) -> Preview:
        how = params or ActionParams()
        if action in ("suspend", "restore") or isinstance(
                how.setting, GpuReset | GpuDiagnosis | MigLayout | TimeSlice):
            self.facts()
        return preview(self._context, own_look(action, how, task_id))

    def facts(self) -> Mapping[str, GpuFacts]:
        """Return the GPUs by UUID, as they were first read."""
        recent = self._context.tasks.recent
        if not recent.facts:
            recent.set_facts(next((reading.facts for reading in self.readings(0.0)), ()))
        return recent.facts

    def act(
        self, previewed: Preview, reason: str, name: str,
        tell: Callable[[Reply], None] = lambda reply: None,
    ) -> Reply:
        """Block until there is an outcome; `tell` is called at each step."""
        command = own_command(NODE, previewed,
                              CommandActor("terminal", name[:128] or "unknown"), reason)
        refusal = _refusal(previewed)
        try:
            reply = self._journal.record_first(command, command.command_id, first_reply(
                command, "accepted" if refusal is None else "refused", refusal))
        except JournalError as why:
            return first_reply(command, "refused", Refusal("journal", str(why)))
        tell(reply)
        if refusal is not None:
            return reply
        if not self._lock.take(COMMAND_LASTS_S):
            busy = Refusal("busy", "another action was in progress on this node; nothing was "
                                   "touched. Try again.")
            return self._journal.record_result(later_reply(reply, "refused", busy), {})
        return _carry_out(self._context, self._journal, self._lock, command, reply, tell,
                          self._timeouts)

    def _ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while self._source.fresh(0.5) is None:
            if self._source.state not in ("starting", "ok"):
                raise CommandError(self._source.detail)
            if time.monotonic() > deadline:
                raise CommandError("the driver does not answer; see `dmesg`")
            time.sleep(0.02)


def _refusal(previewed: Preview) -> Refusal | None:
    if previewed.refusals:
        return previewed.refusals[0]
    if not 0 <= time.time() - previewed.taken_at <= PREVIEW_LASTS_S:
        return Refusal("stale_preview", "the preview has expired; preview again")
    return None


@dataclass(frozen=True, slots=True)
class OfflineNotifier:
    """Notifier of a task's owner. Blocks until there is an outcome; runs on its own thread."""

    context: NodeContext
    journal: ActionJournal
    lock: ActionLock

    def notify(self, task_id: str, asker: str, reason: str) -> tuple[OutcomeKind, str]:
        previewed = preview(self.context, own_look("notify", ActionParams(text=reason), task_id))
        if previewed.refusals:
            return _kind(previewed.refusals[0]), previewed.refusals[0].sentence
        command = own_command(self.context.node.node_id, previewed,
                              CommandActor("rule", asker[:128]), reason)
        try:
            accepted = self.journal.record_first(command, command.command_id,
                                              first_reply(command, "accepted"))
        except JournalError as why:
            return "put_off", str(why)
        if not self.lock.take(LOCK_WITHIN_S):
            self.journal.record_result(Reply(
                accepted.command_id, accepted.number + 1, "expired", time.time(),
                "another action was in progress on this node; nothing was touched"), {})
            return "put_off", "another action was in progress on this node"
        return _outcome(_carry_out(self.context, self.journal, self.lock, command, accepted,
                                   lambda reply: None, ActionTimeouts()))


def _kind(refusal: Refusal) -> OutcomeKind:
    return "put_off" if refusal.code in TRANSIENT else "refused"


def _outcome(reply: Reply) -> tuple[OutcomeKind, str]:
    if reply.state in ("done", "not_effective"):
        return "done", reply.step
    if reply.refusal is not None and reply.state == "refused":
        return _kind(reply.refusal), reply.refusal.sentence
    return "failed", f"the outcome is {reply.state.replace('_', ' ')}: {reply.step}"


# both


def own_look(action: ShownAction, params: ActionParams, task_id: str) -> Look:
    return Look(uuid.uuid4().hex, secrets.token_bytes(32), action, params, task_id)


def own_command(node_id: str, previewed: Preview, asker: CommandActor, reason: str) -> Command:
    """Build a command that this node gives itself; no hub has the epoch 0."""
    now = time.time()
    return Command(
        command_id=uuid.uuid4().hex, node_id=node_id, epoch=0, issued_at=now,
        expires_at=now + COMMAND_LASTS_S, nonce=previewed.nonce, action=previewed.action,
        asker=asker, reason=reason[:1_024], preview=previewed)


def _carry_out(
    context: NodeContext, journal: ActionJournal, lock: ActionLock, command: Command,
    accepted: Reply, tell: Callable[[Reply], None], timeouts: ActionTimeouts,
) -> Reply:
    """Execute the command. Called with the lock held; releases it."""
    try:
        return ActionExecutor(context, journal, tell, timeouts, never_recalled).act(
            command, accepted)
    finally:
        lock.free()
