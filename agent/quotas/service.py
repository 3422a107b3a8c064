"""Quotas on this node: says what of them is in force, and notifies owners while there is no hub.

Called from the node's own thread, which never waits for it: disk, probes and acts have threads.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from gpudeck.contract.desired_state import (
    RECONCILE_EVERY_S,
    DesiredState,
    InForce,
    QuotaEnforcement,
    QuotaMechanism,
    SignedDesired,
    decode_desired,
    desired_statement,
)
from gpudeck.contract.limits import GroupMemoryLimit, MpsDaemon
from gpudeck.contract.wire import FromAgent, GpuFacts
from gpudeck.network.keys import fingerprint, is_signed

from ..actions.context import held_words
from ..actions.standalone import OfflineNotifier
from ..journal.facts import Fact
from ..journal.store import ActionJournal, JournalError
from ..runtime.worker import Worker
from ..tasks.seen import GpuTask
from . import evaluate
from .evaluate import DueWarning, Key, QuotaRefusals, QuotaSnapshot, QuotaWarning, QuotaWarnings
from .mechanisms import HAMI_FILES, mechanisms, mps
from .memory import with_limits

log = logging.getLogger("gpudeck.agent.quotas")

SAY_EVERY_S = 60.0
LOOK_EVERY_S = 1.0  # while there is no hub
READ_AGAIN_S = 5.0
PROBE_EVERY_S = 60.0


class _StoredQuotas(msgspec.Struct):
    key: bytes  # of the hub
    body: bytes
    signature: bytes


class DesiredQuotas:
    """Quotas that the hub wants on this node. `changed` is called when there are other quotas, or a
    reason why not."""

    def __init__(self, journal: ActionJournal, node_id: str, hub: str,
                 changed: Callable[[], None]) -> None:
        self._journal = journal
        self._node_id = node_id
        self._hub = hub
        self._changed = changed
        self._hub_key: bytes | None = None
        self.current: DesiredState | None = None
        self.trouble = ""

    def set_hub_key(self, hub_key: bytes) -> None:
        """Take the key that the hub has proved, and whose fingerprint is the one that is pinned."""
        self._hub_key = hub_key

    def unreadable(self, why: str) -> None:
        self.trouble = why

    def read(self) -> None:
        """Read the quotas on disk. Raises JournalError."""
        text = self._journal.fact(Fact.QUOTAS, self._hub)
        self.trouble = ""
        if text is not None:
            self._rebuild(text)

    def take(self, message: SignedDesired) -> None:
        desired = self._checked(message, self._hub_key)
        if desired is None:
            return
        if not evaluate.is_newer(desired, self.current):
            self.refuse("the quotas received are older than those in force here")
            return
        try:
            stored = _StoredQuotas(self._hub_key or b"", message.body, message.signature)
            self._journal.keep(Fact.QUOTAS, msgspec.json.encode(stored).decode(), {
                "kind": "quotas", "sentence": f"holds {len(desired.quotas)} quotas of the hub, "
                f"generation {desired.generation}", "epoch": desired.epoch,
                "generation": desired.generation,
                "quotas": [quota.id for quota in desired.quotas]}, self._hub)
        except JournalError as why:
            self.refuse(str(why))
            return
        self._hold(desired)

    def refuse(self, why: str) -> None:
        log.warning("quotas_not_taken why=%r", why)
        self.trouble = why[:1_024]
        self._changed()

    def _checked(self, message: SignedDesired, key: bytes | None) -> DesiredState | None:
        if key is None or fingerprint(key) != self._hub or not is_signed(
                key, desired_statement(message.body), message.signature):
            self.refuse("the quotas received are not signed by this node's hub")
            return None
        try:
            desired = decode_desired(message.body)
        except msgspec.MsgspecError as error:
            self.refuse(f"the quotas received cannot be read ({error}); update gpudeck on this "
                        "node")
            return None
        if desired.node_id != self._node_id:
            self.refuse("the quotas received are for another node")
            return None
        return desired

    def _hold(self, desired: DesiredState) -> None:
        self.current, self.trouble = desired, ""
        log.info("quotas_held generation=%d quotas=%d", desired.generation, len(desired.quotas))
        self._changed()

    def _rebuild(self, text: str) -> None:
        """Load stored quotas, if signed: write access to this disk must not create any."""
        try:
            stored = msgspec.json.decode(text, type=_StoredQuotas)
        except msgspec.MsgspecError:
            self.trouble = "the stored quotas cannot be read; the hub sends them again"
            return
        desired = self._checked(SignedDesired(stored.body, stored.signature), stored.key)
        if desired is not None:
            self._hold(desired)


@dataclass(frozen=True, slots=True)
class QuotaSample:
    """Tasks that the node saw last. `at`: by the clock that never steps."""

    gpu_tasks: Sequence[GpuTask]
    at: float


class QuotaService:
    """Service of the quotas on this node. `hub`: the fingerprint of its key. `is_made_up`: one of a
    simulator's many nodes. `memory`: limits that the driver enforces; raises JournalError.
    `limits_memory`: this agent sets such limits.
    `cut_off_after_s`: a test may be less patient."""

    def __init__(self, notifier: OfflineNotifier, hub: str, host: str, is_made_up: bool,
                 wake: Callable[[], None], memory: Callable[[], Sequence[GroupMemoryLimit]],
                 limits_memory: bool,
                 cut_off_after_s: float = evaluate.CUT_OFF_AFTER_S) -> None:
        self._node = notifier.context.node
        self._host = host
        self._is_made_up = is_made_up
        self._notifier = notifier
        self._journal: ActionJournal = notifier.journal
        self._wake = wake
        self._memory = memory
        self._limits_memory = limits_memory
        self._cut_off_after_s = cut_off_after_s
        self._writer = Worker("quotas")
        self._actor = Worker("quota hand")
        self._warnings: QuotaWarnings = {}
        self.is_read = False
        self._looked_at = self._reported_at = float("-inf")
        self._read_at = time.monotonic()
        self._live_at = time.monotonic()
        self._out: list[FromAgent] = []
        self._last_report: InForce | None = None
        self._mechanisms: tuple[QuotaMechanism, ...] = ()
        self._probed: tuple[str | None, Sequence[GpuFacts]] | None = None
        self._probed_at = float("-inf")
        self._daemons: Sequence[MpsDaemon] | None = None
        self._spared: frozenset[str] = frozenset()
        self._put_off: deque[Key] = deque()
        self._desired = DesiredQuotas(self._journal, self._node.node_id, hub, self._renew)
        self._read()

    # the hub

    def set_hub_key(self, hub_key: bytes) -> None:
        self._desired.set_hub_key(hub_key)

    def connected(self) -> None:
        self._last_report = None  # this hub may know nothing of it
        self._looked_at = float("-inf")

    def receive(self, message: SignedDesired) -> None:
        self._writer.put(lambda: self._take(message))

    def _take(self, message: SignedDesired) -> None:
        self._read()
        if self.is_read:
            self._desired.take(message)

    def _renew(self) -> None:
        self._looked_at = float("-inf")
        self._wake()

    @property
    def desired(self) -> DesiredState | None:
        """Quotas that are wanted here; None: none, or not known yet."""
        return self._desired.current

    # the disk

    def _read(self) -> None:
        """Read the disk before anything newer is accepted; retried until that works."""
        if self.is_read:
            return
        try:
            warnings = self._journal.fact(Fact.QUOTA_WARNINGS)
            self._desired.read()
        except JournalError as why:
            self._desired.unreadable(str(why))
            return
        self.is_read = True
        if warnings is not None:
            self._warnings = _warnings(warnings, self._node.boot_id)

    # time

    def step(self, now: float, sample: QuotaSample | None, is_live: bool,
             driver_version: str | None,
             facts: Sequence[GpuFacts], daemons: Sequence[MpsDaemon] | None = None) -> None:
        """Do what is due now. `daemons`: of MPS, as seen last."""
        self._daemons = daemons
        if is_live:
            self._live_at = now
        if not self.is_read and now - self._read_at >= READ_AGAIN_S:
            self._read_at = now
            self._writer.put(self._read_and_wake)
        if not self.is_read or self._desired.current is None:
            if self._desired.trouble and now - self._reported_at >= SAY_EVERY_S:
                self._put_report(InForce(0, 0.0, time.time(), trouble=self._desired.trouble), now)
            return
        while self._put_off and self._keep(
                evaluate.put_off(self._warnings, self._put_off[0], now)):
            self._put_off.popleft()
        hub: evaluate.Hub = "there" if is_live else (
            "gone" if now - self._live_at >= self._cut_off_after_s else "quiet")
        every_s = LOOK_EVERY_S if hub == "gone" else RECONCILE_EVERY_S
        is_reloaded = (driver_version, facts) != self._probed
        if now - self._looked_at < every_s and not is_reloaded:
            return
        self._looked_at = now
        self._probe(driver_version, facts, now)
        desired = self._desired.current
        self._look(desired, self._snapshot(desired, sample, now), hub, now)

    def _read_and_wake(self) -> None:
        self._read()
        self._wake()

    def _probe(self, driver_version: str | None, facts: Sequence[GpuFacts], now: float) -> None:
        """Look for mechanisms now and then. A simulated machine has no files for it."""
        if (driver_version, facts) == self._probed and now - self._probed_at < PROBE_EVERY_S:
            return
        self._probed, self._probed_at = (driver_version, facts), now
        files = () if self._is_made_up else HAMI_FILES
        self._mechanisms = mechanisms(driver_version, facts, self._limits_memory, files)

    def _snapshot(self, desired: DesiredState, sample: QuotaSample | None,
                  now: float) -> QuotaSnapshot:
        gpu_tasks = () if sample is None else sample.gpu_tasks
        return QuotaSnapshot(
            evaluate.holdings_of(gpu_tasks, self._node.node_id, self._host, desired.group),
            None if sample is None else now - sample.at, time.time(), self.rights(),
            self._spared)

    def rights(self) -> QuotaRefusals:
        guards = self._notifier.context.guards
        ceiling, hold = guards.ceiling(), held_words(guards.holds())
        tell = ceiling.trouble
        if not tell and "notify" not in ceiling.actions:
            tell = "the ceiling of this node does not permit 'notify'"
        tell = tell or hold
        return QuotaRefusals(tell[:400], (guards.why_rules_end_nothing() or tell)[:400])

    def _look(self, desired: DesiredState, snapshot: QuotaSnapshot, hub: evaluate.Hub,
              now: float) -> None:
        report = InForce(desired.generation, desired.issued_at, snapshot.wall,
                         self._enforcements(desired, snapshot),
                         (*self._mechanisms, mps(self._daemons)), self._desired.trouble)
        if _is_news(report, self._last_report) or now - self._reported_at >= SAY_EVERY_S:
            self._put_report(report, now)
        warnings, warnings_due = evaluate.due_warnings(
            self._warnings, desired, snapshot, hub, now)
        if self._keep(warnings):
            for due in warnings_due:
                self._actor.put(lambda due=due: self._notify(due))  # type: ignore[misc]

    def _enforcements(self, desired: DesiredState, snapshot: QuotaSnapshot
                      ) -> tuple[QuotaEnforcement, ...]:
        try:
            limits = self._memory()
        except JournalError:
            limits = ()
        return tuple(with_limits(mark, limits) for mark in evaluate.marks(desired, snapshot))

    def _keep(self, warnings: QuotaWarnings) -> bool:
        """Store that owners are being notified before it is done, so that a restart notifies nobody
        twice. False: the disk refuses, and nothing may be done."""
        if warnings != self._warnings:
            stored = _StoredWarnings(self._node.boot_id, [
                (*key, warning) for key, warning in warnings.items()])
            try:
                self._journal.keep(Fact.QUOTA_WARNINGS, msgspec.json.encode(stored).decode())
            except JournalError as why:
                log.error("quota_warnings_not_kept why=%r", str(why))
                return False
        self._warnings = warnings
        return True

    def _notify(self, due: DueWarning) -> None:
        quota_id, task_id = due.key[0], due.task_ids[0]
        kind, sentence = self._notifier.notify(task_id, f"quota {quota_id}", due.sentence)
        log.info("quota_warning quota=%s task=%s outcome=%s why=%r", quota_id, task_id, kind,
                 sentence)
        if kind == "refused":
            self._spared |= {*due.task_ids}
        elif kind == "put_off":
            self._put_off.append(due.key)
        self._wake()

    def _put_report(self, report: InForce, now: float) -> None:
        self._last_report, self._reported_at = report, now
        self._out = [report]

    def poll(self) -> list[FromAgent]:
        """Return what is to be sent over a live connection."""
        out, self._out = self._out, []
        return out

    def close(self) -> None:
        self._writer.close()
        self._actor.close()


def _is_news(report: InForce, before: InForce | None) -> bool:
    return before is None or msgspec.structs.replace(report, looked_at=before.looked_at) != before


class _StoredWarnings(msgspec.Struct):
    """Warnings on disk. Their times are of this boot's clock."""

    boot: str
    warnings: list[tuple[str, str, QuotaWarning]]  # quota, job


def _warnings(text: str, boot_id: str) -> QuotaWarnings:
    try:
        stored = msgspec.json.decode(text, type=_StoredWarnings)
    except msgspec.MsgspecError:
        return {}
    return {} if stored.boot != boot_id else {
        (quota_id, job_id): warning for quota_id, job_id, warning in stored.warnings}
