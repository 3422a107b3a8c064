"""The node's desk for Quotas: keeps what the hub signed, says what of it is in force, and goes on
by itself while there is no hub.

Called from the node's own thread, which never waits for it: disk, probes and acts have threads.
"""

import base64
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from gpudeck.desired_state import (
    RECONCILE_EVERY_S,
    DesiredState,
    InForce,
    QuotaMechanism,
    SignedDesired,
    decode_desired,
    desired_statement,
)
from gpudeck.keys import fingerprint, is_signed
from gpudeck.ladder import LadderClimb, OutcomeKind
from gpudeck.limits import MpsDaemon
from gpudeck.wire import FromAgent, GpuFacts

from ..actions.ceiling import read_ceiling
from ..actions.offline import OfflineExecutor
from ..journal.store import ActionJournal, JournalError
from ..runtime.worker import Worker
from ..tasks.seen import GpuTask
from . import evaluate
from .evaluate import DueQuotaStep, OfflineQuotaState, QuotaRefusals, QuotaSnapshot
from .mechanisms import HAMI_FILES, mechanisms, mps

log = logging.getLogger("gpudeck.agent.quotas")

SAY_EVERY_S = 60.0
LOOK_EVERY_S = 1.0  # while there is no hub
READ_AGAIN_S = 5.0
PROBE_EVERY_S = 60.0
CLIMBS = "quota climbs"
HUB_CLOCK = "hub clock"


@dataclass(frozen=True, slots=True)
class QuotaSample:
    """What the node saw last. `at`: by the clock that never steps."""

    seen: Sequence[GpuTask]
    at: float


@dataclass(frozen=True, slots=True)
class QuotaServiceConfig:
    node_id: str
    hub: str  # the fingerprint of its key
    host: str
    boot_id: str
    is_made_up: bool = False


class QuotaService:
    """`cut_off_after_s`: a test may be less patient."""

    def __init__(self, config: QuotaServiceConfig, acts: OfflineExecutor, wake: Callable[[], None],
                 holds: Callable[[], tuple[str, ...]],
                 hub_time: Callable[[float], float | None],
                 cut_off_after_s: float = evaluate.CUT_OFF_AFTER_S) -> None:
        self._config = config
        self._acts = acts
        self._journal: ActionJournal = acts.journal
        self._wake = wake
        self._holds = holds
        self._hub_time = hub_time
        self._cut_off_after_s = cut_off_after_s
        self._clerk = Worker("quotas")
        self._hand = Worker("quota hand")
        self._hub_key: bytes | None = None
        self._held: DesiredState | None = None
        self._stand = OfflineQuotaState()
        self._is_read = False
        self._looked_at = self._said_at = float("-inf")
        self._read_at = time.monotonic()
        self._hub_ahead_s: float | None = None  # its clock minus ours that never steps
        self._live_at = time.monotonic()
        self._out: list[FromAgent] = []
        self._said: InForce | None = None
        self._mechanisms: tuple[QuotaMechanism, ...] = ()
        self._probed: tuple[str | None, Sequence[GpuFacts]] | None = None
        self._probed_at = float("-inf")
        self._daemons: Sequence[MpsDaemon] | None = None
        self._spared: frozenset[str] = frozenset()
        self._settled: deque[tuple[DueQuotaStep, OutcomeKind, str]] = deque()
        self.trouble = ""
        self._read()

    # what the hub says

    def greeted(self, hub_key: bytes) -> None:
        """It has proved this key, and its fingerprint is the one that is pinned."""
        self._hub_key = hub_key

    def connected(self) -> None:
        self._said = None  # this hub may know nothing of it
        self._looked_at = float("-inf")

    def hear(self, message: SignedDesired) -> None:
        self._clerk.put(lambda: self._take(message))

    def _take(self, message: SignedDesired) -> None:
        self._read()
        desired = self._checked(message, self._hub_key)
        if desired is None or not self._is_read:
            return
        if not evaluate.is_newer(desired, self._held):
            self._refuse("what was sent is older than what is held here")
            return
        try:
            self._journal.keep(self._name, _kept(message, self._hub_key or b""), {
                "kind": "quotas", "sentence": f"holds {len(desired.quotas)} quotas of the hub, "
                f"generation {desired.generation}", "epoch": desired.epoch,
                "generation": desired.generation,
                "quotas": [quota.id for quota in desired.quotas]})
        except JournalError as why:
            self._refuse(str(why))
            return
        self._hold(desired)

    def _checked(self, message: SignedDesired, key: bytes | None) -> DesiredState | None:
        if key is None or fingerprint(key) != self._config.hub or not is_signed(
                key, desired_statement(message.body), message.signature):
            self._refuse("what was sent is not signed by the hub to which this node belongs")
            return None
        try:
            desired = decode_desired(message.body)
        except msgspec.MsgspecError as error:
            self._refuse(f"what was sent cannot be read ({error}); update gpudeck on this node")
            return None
        if desired.node_id != self._config.node_id:
            self._refuse("what was sent is for another node")
            return None
        return desired

    def _refuse(self, why: str) -> None:
        log.warning("quotas_not_taken why=%r", why)
        self.trouble = why[:1_024]
        self._renew()

    def _hold(self, desired: DesiredState) -> None:
        self._held, self.trouble = desired, ""
        log.info("quotas_held generation=%d quotas=%d", desired.generation, len(desired.quotas))
        self._renew()

    def _renew(self) -> None:
        self._looked_at = float("-inf")
        self._wake()

    # what is on the disk

    @property
    def _name(self) -> str:
        return f"desired {self._config.hub}"

    def _read(self) -> None:
        """Before anything newer is taken; tried again until the disk says it."""
        if self._is_read:
            return
        try:
            kept = self._journal.fact(self._name)
            climbs, clock = self._journal.fact(CLIMBS), self._journal.fact(HUB_CLOCK)
        except JournalError as why:
            self.trouble = str(why)
            return
        self._is_read, self.trouble = True, ""
        if kept is not None:
            self._rebuild(kept)
        if clock is not None:
            self._hub_ahead_s = _ahead_s(clock, self._config.boot_id)
        if climbs is not None:
            self._stand = evaluate.recovered(_climbs(climbs, self._config.boot_id),
                                           time.monotonic())

    def _rebuild(self, kept: str) -> None:
        """Signed or not at all: whoever writes on this disk makes no Quotas."""
        try:
            told = json.loads(kept)
            key, body, signature = (base64.b64decode(told[part])
                                    for part in ("key", "body", "signature"))
        except (ValueError, KeyError, TypeError):
            self.trouble = "what was kept of the quotas cannot be read; the hub sends it again"
            return
        desired = self._checked(SignedDesired(body, signature), key)
        if desired is not None:
            self._hold(desired)

    # time

    def step(self, now: float, sample: QuotaSample | None, is_live: bool,
             driver_version: str | None,
             facts: Sequence[GpuFacts], daemons: Sequence[MpsDaemon] | None = None) -> None:
        """`daemons`: of MPS, as seen last."""
        self._daemons = daemons
        if is_live:
            self._live_at = now
            self._note_hub_time(now)
        if not self._is_read and now - self._read_at >= READ_AGAIN_S:
            self._read_at = now
            self._clerk.put(self._read_and_wake)
        if not self._is_read or self._held is None:
            if self.trouble and now - self._said_at >= SAY_EVERY_S:
                self._say(InForce(0, 0.0, time.time(), trouble=self.trouble), now)
            return
        while self._settled:
            due, kind, sentence = self._settled.popleft()
            self._keep(evaluate.settled(self._stand, due.key, kind, sentence, now))
        hub: evaluate.Hub = "there" if is_live else (
            "gone" if now - self._live_at >= self._cut_off_after_s else "quiet")
        every_s = LOOK_EVERY_S if hub == "gone" else RECONCILE_EVERY_S
        is_reloaded = (driver_version, facts) != self._probed
        if now - self._looked_at < every_s and not is_reloaded:
            return
        self._looked_at = now
        self._probe(driver_version, facts, now)
        self._look(self._held, self._scene(self._held, sample, now), hub, now)

    def _read_and_wake(self) -> None:
        self._read()
        self._wake()

    def _note_hub_time(self, now: float) -> None:
        at = self._hub_time(now)
        if at is None:
            return
        ahead_s, known = at - now, self._hub_ahead_s
        self._hub_ahead_s = ahead_s
        if self._held is not None and (known is None or abs(known - ahead_s) > 1.0):
            kept = json.dumps({"boot": self._config.boot_id, "ahead_s": ahead_s})
            self._clerk.put(lambda: self._keep_hub_time(kept))

    def _keep_hub_time(self, kept: str) -> None:
        try:
            self._journal.keep(HUB_CLOCK, kept)
        except JournalError as why:
            log.error("hub_clock_not_kept why=%r", str(why))

    def _probe(self, driver_version: str | None, facts: Sequence[GpuFacts], now: float) -> None:
        """A machine that is made up has no files of its own."""
        if (driver_version, facts) == self._probed and now - self._probed_at < PROBE_EVERY_S:
            return
        self._probed, self._probed_at = (driver_version, facts), now
        files = () if self._config.is_made_up else HAMI_FILES
        self._mechanisms = mechanisms(driver_version, facts, files)

    def _scene(self, held: DesiredState, sample: QuotaSample | None, now: float) -> QuotaSnapshot:
        seen = () if sample is None else sample.seen
        return QuotaSnapshot(
            evaluate.holdings_of(seen, self._config.node_id, self._config.host, held.group),
            None if sample is None else now - sample.at, time.time(), self._rights(),
            self._spared)

    def _rights(self) -> QuotaRefusals:
        ceiling, holds = read_ceiling(self._acts.place.ceiling_file), self._holds()
        tell = end = ceiling.trouble
        if not tell and "notify" not in ceiling.actions:
            tell = "the ceiling of this node does not permit 'notify'"
        if not end and "end" not in ceiling.actions:
            end = "the ceiling of this node does not permit 'end'"
        if not end and not ceiling.rules_may_act:
            end = ("the ceiling of this node does not let rules and quotas act "
                   "(rules_may_act in ceiling.toml)")
        if holds:
            tell = end = tell or f"all acts on this node are on hold: {'; '.join(holds)}"
        return QuotaRefusals(tell[:400], (end or tell)[:400])

    def _look(self, held: DesiredState, scene: QuotaSnapshot, hub: evaluate.Hub,
              now: float) -> None:
        said = InForce(held.generation, held.issued_at, scene.wall, evaluate.marks(held, scene),
                       (*self._mechanisms, mps(self._daemons)), self.trouble)
        if _is_news(said, self._said) or now - self._said_at >= SAY_EVERY_S:
            self._say(said, now)
        hub_now = None if self._hub_ahead_s is None else now + self._hub_ahead_s
        after = evaluate.stand(self._stand, held, scene, hub, hub_now, now)
        self._keep(after)
        for due in after.due:
            self._hand.put(lambda due=due: self._do(due))  # type: ignore[misc]

    def _keep(self, after: OfflineQuotaState) -> None:
        """Before anything of it is done, so that a restart does nothing twice."""
        if after.climbs != self._stand.climbs:
            kept = _packed(after, self._config.boot_id)
            try:
                self._journal.keep(CLIMBS, kept)
            except JournalError as why:
                log.error("climbs_not_kept why=%r", str(why))
                after = OfflineQuotaState(self._stand.climbs)
        self._stand = after

    def _do(self, due: DueQuotaStep) -> None:
        kind, sentence = self._acts.do(due.step.do, due.offender.task_ids[0],
                                       f"quota {due.quota.id}", due.sentence)
        log.info("quota_step quota=%s do=%s task=%s outcome=%s why=%r", due.quota.id,
                 due.step.do, due.offender.task_ids[0], kind, sentence)
        if kind == "refused":
            self._spared |= {*due.offender.task_ids}
        self._settled.append((due, kind, sentence))
        self._wake()

    def _say(self, said: InForce, now: float) -> None:
        self._said, self._said_at = said, now
        self._out = [said]

    def say(self) -> list[FromAgent]:
        """What is to be sent over a live connection."""
        out, self._out = self._out, []
        return out

    def close(self) -> None:
        self._clerk.close()
        self._hand.close()


def _is_news(said: InForce, before: InForce | None) -> bool:
    return before is None or msgspec.structs.replace(said, looked_at=before.looked_at) != before


def _kept(message: SignedDesired, key: bytes) -> str:
    return json.dumps({name: base64.b64encode(part).decode() for name, part in (
        ("key", key), ("body", message.body), ("signature", message.signature))})


def _ahead_s(kept: str, boot_id: str) -> float | None:
    """Our clock that never steps goes on over a restart of the agent, and no further."""
    try:
        told = json.loads(kept)
        return float(told["ahead_s"]) if told["boot"] == boot_id else None
    except (ValueError, KeyError, TypeError):
        return None


def _packed(stand: OfflineQuotaState, boot_id: str) -> str:
    """Their times are of this boot's clock."""
    return json.dumps({"boot": boot_id, "climbs": [
        [*key, base64.b64encode(msgspec.msgpack.encode(climb)).decode()]
        for key, climb in stand.climbs.items()]})


def _climbs(kept: str, boot_id: str) -> dict[tuple[str, str], LadderClimb]:
    try:
        told = json.loads(kept)
        if told["boot"] != boot_id:
            return {}
        return {(quota_id, job_id): msgspec.msgpack.decode(base64.b64decode(raw), type=LadderClimb)
                for quota_id, job_id, raw in told["climbs"]}
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        return {}
