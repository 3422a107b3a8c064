"""Does one setting: looks again, sets, reads back. What was said counts as applied, what was read
back as in force, and they are told apart. Blocks; on the thread of acts."""

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from gpudeck.actions import ActionVerification, Command, CommandState, Preview, Refusal, Reply
from gpudeck.limits import (
    PRESETS,
    ClockLock,
    ComputeMode,
    GpuSetting,
    LimitRelease,
    ManagedComputeMode,
    MpsMemory,
    MpsPercent,
    MpsPreset,
    MpsPriority,
    MpsRestart,
    MpsSetting,
    MpsStart,
    MpsStop,
    PowerCap,
    TimedLimit,
)

from ..journal.store import JournalError
from ..limits.apply import MODES, UNSURE
from ..limits.compute_modes import words_of
from ..limits.mps import MpsControlError, MpsDaemonHandle, shown_limit
from ..limits.mps_store import Default, as_it_is
from ..limits.timed_limit_store import TimedLimitStore, clock_now
from ..limits.timed_limits import judged, same_limit
from ..readings import GpuLimits
from ..tasks.terminals import tell
from . import preview_setting
from .preview import NodeContext, PreviewRequest
from .signals import ProcessHandles, is_same, living

READ_BACK_WITHIN_S = 2.0
MPS_WITHIN_S = 0.5  # it answers from its own memory
READ_EVERY_S = 0.1

Outcome = tuple[CommandState, Refusal | None, ActionVerification, str]


class ActionRefusedError(Exception):
    """Before anything was touched."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


class SettingExecution:
    def __init__(
        self, place: NodeContext, command: Command, reply: Reply,
        say: Callable[[Reply, str], Reply],
    ) -> None:
        assert command.preview is not None
        self.reply = reply
        self._place = place
        self._command = command
        self._shown: Preview = command.preview
        self._say_it = say

    def do(self) -> Outcome:
        self._look_again()
        setting = self._shown.params.setting
        with ProcessHandles() as grips:
            watched = [(each, grips.take(each.process.pid)) for each in self._shown.bystanders]
            known = [(each, grip) for each, grip in watched if grip is not None
                     and (facts := grip.facts()) is not None
                     and is_same(facts.identity, each.process)]
            if isinstance(setting, GpuSetting):
                applied, in_force, step = self._set_gpu(setting)
            else:
                assert setting is not None
                applied, in_force, step = self._set_mps(setting)
            alive = set(living([grip for _, grip in known]))
            vanished = tuple(each.task_id for each, grip in known if grip not in alive)
        verified = ActionVerification(applied=applied, in_force=in_force, vanished=vanished,
                                      bystanders_alive=not vanished if known else None)
        is_done = applied and in_force is not False and not vanished
        return ("done" if is_done else "not_effective"), None, verified, step

    def _look_again(self) -> None:
        shown = self._shown
        ask = PreviewRequest(shown.ask_id, shown.nonce, shown.action, shown.params, shown.task_id)
        now = preview_setting.preview(self._place, ask, self._command.asker.kind)
        if now.refusals:
            raise ActionRefusedError(now.refusals[0])
        if now.changes != shown.changes:
            raise ActionRefusedError(Refusal("changed",
                                             "what it is now is not what was shown; nothing was "
                                                        "touched. Look again."))
        before = {victim.process for victim in shown.victims}
        if any(victim.process not in before for victim in now.victims):
            raise ActionRefusedError(Refusal("changed",
                                             "there are clients now that were not shown; nothing "
                                                        "was touched. Look again."))

    # MPS

    def _set_mps(self, setting: MpsSetting) -> tuple[bool, bool | None, str]:
        daemon = self._place.mps.daemon(setting.pipes)
        match setting:
            case MpsStart():
                trouble = daemon.start()
                return not trouble, daemon.is_alive(), trouble or f"it answers in {setting.pipes}"
            case MpsStop():
                applied, is_gone, step = self._stop(daemon)
                return applied, is_gone, step + (self._keep(setting) if is_gone else "")
            case MpsRestart():
                return self._restart(daemon, setting)
        try:
            words = self._set_values(daemon, setting)
        except MpsControlError as why:
            raise ActionRefusedError(Refusal("setting", f"{why}; nothing was changed")) from why
        except JournalError as why:
            raise ActionRefusedError(Refusal("journal", str(why))) from why
        if wrong := [each for each in words if each]:
            return True, False, "applied, not in force: " + "; ".join(wrong)
        return True, True, "read back as wanted; " + self._who_keeps() + self._keep(setting)

    def _keep(self, setting: MpsSetting) -> str:
        """So that it is known to be gone when the daemon is started anew."""
        try:
            self._place.now_wanted_of_mps(setting)
        except JournalError as why:
            return f"; it could not be written down as what is wanted ({why})"
        return ""

    def _who_keeps(self) -> str:
        count = len(self._shown.bystanders)
        if count == 0:
            return "no client runs that has another value"
        return f"{count} running client{'s' * (count != 1)} keep{'s' * (count == 1)} the old value"

    def _set_values(self, daemon: MpsDaemonHandle, setting: MpsSetting) -> list[str]:
        """What is not as wanted afterwards."""
        match setting:
            case MpsPercent():
                return [self._percent(daemon, setting.pct, setting.server)]
            case MpsMemory():
                daemon.set_memory(setting.ordinal, setting.mem_mib, setting.server)
                return [_same(lambda: daemon.memory(setting.ordinal, setting.server),
                              shown_limit(setting.mem_mib))]
            case MpsPriority():
                return [_priority(daemon, setting.priority)]
            case MpsPreset():
                return self._preset(daemon, setting)
        return []

    def _preset(self, daemon: MpsDaemonHandle, setting: MpsPreset) -> list[str]:
        pct, priority = PRESETS[setting.name]
        wrong = self._percent(daemon, pct, setting.server)
        try:
            return [wrong, _priority(daemon, priority)]
        except MpsControlError as why:  # the first of the two was taken
            return [wrong, str(why)]

    def _percent(self, daemon: MpsDaemonHandle, pct: int, server: int | None) -> str:
        """What those that run keep is written down first: it is true also if this is refused."""
        before = daemon.percent(server)
        if server is not None and before is not None:
            self._place.was_given(str(daemon.folder), server, before, daemon.clients(server))
        daemon.set_percent(pct, server)
        return _same(lambda: daemon.percent(server), float(pct))

    def _stop(self, daemon: MpsDaemonHandle) -> tuple[bool, bool, str]:
        grace_s = round(self._shown.params.grace_s)
        self._tell_victims(grace_s)
        self._say(f"the daemon was told to quit; clients have {grace_s} s to leave")
        try:
            trouble = daemon.quit(grace_s)
        except MpsControlError as why:
            raise ActionRefusedError(Refusal("setting", f"{why}; nothing was changed")) from why
        return not trouble, not trouble, trouble or "no daemon answers there any more"

    def _tell_victims(self, grace_s: int) -> None:
        """Before, so that they can save."""
        by = self._command.asker
        for uid in {victim.process.uid for victim in self._shown.victims}:
            tell(uid, [f"gpudeck: {by.name} ({by.kind}) stops MPS in "
                       f"{getattr(self._shown.params.setting, 'pipes', '')}",
                       f"  Its clients lose what they do on the GPU in {grace_s} s.",
                       f"  Reason: {self._command.reason}" if self._command.reason else ""])

    def _wanted(self, pipes: str) -> tuple[Default, ...]:
        """As gpudeck has set it: MPS itself shows whole GiB."""
        try:
            return tuple(each for each in self._place.wanted_mps() if each.pipes == pipes)
        except JournalError:
            return ()

    def _restart(self, daemon: MpsDaemonHandle, setting: MpsRestart) -> tuple[bool, bool, str]:
        before, left_out = as_it_is(daemon, setting.pipes, self._wanted(str(daemon.folder)))
        applied, is_gone, words = self._stop(daemon)
        if not is_gone:
            return applied, False, words
        self._say("it has ended; it is started again")
        if trouble := daemon.start():
            return False, False, f"it has ended and does not start again: {trouble}"
        if wrong := [*left_out, *self._restored(daemon, before)]:
            return True, False, "started again; of its defaults not in force: " + "; ".join(wrong)
        return True, True, "started again, with the same defaults"

    def _restored(self, daemon: MpsDaemonHandle, before: Iterable[Default]) -> list[str]:
        """What is not: one that is refused keeps none of the others from being set."""
        wrong = []
        for each in before:
            try:
                wrong += self._set_values(daemon, each)
            except (MpsControlError,
                    ValueError) as why:  # what others have set may be out of our range
                wrong.append(str(why))
        return [each for each in wrong if each]

    # Gpus

    def _set_gpu(self, setting: GpuSetting) -> tuple[bool, bool | None, str]:
        book = self._place.book
        assert book is not None
        try:
            if isinstance(setting, ComputeMode):
                return self._mode(setting)
            if isinstance(setting, LimitRelease):
                return self._release(book, setting)
            return self._lease(book, setting)
        except JournalError as why:
            raise ActionRefusedError(Refusal("journal", str(why))) from why

    def _lease(self, book: TimedLimitStore, setting: PowerCap | ClockLock
               ) -> tuple[bool, bool | None, str]:
        """On disk before it is set, so that no limit is ever left without its end."""
        limiter, uuid = self._place.limiter, setting.gpu_uuid
        found = limiter.read([uuid])[uuid]
        former, lease = book.all(), self._new_lease(setting, found)
        book.begin(lease)
        lease = next(each for each in book.all() if each.lease_id == lease.lease_id)
        trouble = apply(self._place, lease)
        if trouble and not trouble.startswith(UNSURE):
            book.put_back(lease, former)
            raise ActionRefusedError(_not_taken(trouble))
        now = judged_now(self._place, _as_wanted(lease))
        book.note(now)  # also where the driver fell silent: what may be set must have its end
        if trouble:
            return False, now.state == "in_force", f"{trouble}. {now.words}"
        return True, {"in_force": True, "unknown": None}.get(now.state, False), now.words

    def _mode(self, setting: ComputeMode) -> tuple[bool, bool, str]:
        """`default` is what a driver begins with: then nothing is to be held any more, which is
        written down first, so that nobody sets the former one again behind it."""
        book, uuid = self._place.modes, setting.gpu_uuid
        former = book.forget(uuid) if book and setting.mode == "default" else None
        limiter, wanted = self._place.limiter, MODES[setting.mode]
        trouble = limiter.set_mode(uuid, wanted)
        if trouble and not trouble.startswith(UNSURE):
            if book and former is not None:
                book.keep(former)
            raise ActionRefusedError(_not_taken(trouble))
        found = limiter.read([uuid])[uuid]
        is_so = found.compute_mode == wanted
        words = found.trouble or words_of(found.compute_mode)
        words += self._keep_mode(setting) if is_so and setting.mode != "default" else ""
        if trouble:
            return False, is_so, f"{trouble}. The driver says: {words}"
        return True, is_so, f"{'' if is_so else 'applied, not in force: '}the driver says: {words}"

    def _keep_mode(self, setting: ComputeMode) -> str:
        by, wanted = self._command, MODES[setting.mode]
        mode = ManagedComputeMode(setting.gpu_uuid, setting.mode, by.asker.name, by.reason,
                                  self._place.wall(), "in_force",
                                  f"the driver says {words_of(wanted)}")
        try:
            if self._place.modes is not None:
                self._place.modes.keep(mode)
        except JournalError as why:
            return f"; a driver that is loaded anew will forget it: it was not written down ({why})"
        return ""

    def _new_lease(self, setting: PowerCap | ClockLock, found: GpuLimits) -> TimedLimit:
        clock = clock_now(self._place.boot_id)
        is_power = isinstance(setting, PowerCap)
        before = (found.power_w,) if is_power else found.locked_mhz
        return TimedLimit(
            self._command.command_id, setting.gpu_uuid, "power" if is_power else "clocks",
            (float(setting.watts),) if isinstance(setting, PowerCap) else (
                float(setting.min_mhz), float(setting.max_mhz)),
            tuple(each for each in before or () if each is not None), self._command.asker.name,
            self._command.reason, clock.wall, clock.wall + setting.lease_s, clock.boot_id,
            clock.boottime_s + setting.lease_s, "beginning")

    def _release(self, book: TimedLimitStore, setting: LimitRelease) -> tuple[bool, bool, str]:
        lease = next((each for each in book.all()
                      if same_limit(each, setting.gpu_uuid, setting.what)), None)
        if lease is None:
            raise ActionRefusedError(Refusal("setting",
                                             "gpudeck holds no such limit on this Gpu any more"))
        trouble = undo(self._place, lease)
        if trouble:
            return False, False, trouble
        wrong = undone(self._place, lease)
        if wrong:
            return True, False, f"applied, not in force: {wrong}"
        book.end(lease, f"released by {self._command.asker.name}")
        return True, True, "what was before is set again"

    def _say(self, step: str) -> None:
        self.reply = self._say_it(self.reply, step)


def _not_taken(trouble: str) -> Refusal:
    return Refusal("permission" if "CAP_SYS_ADMIN" in trouble else "setting",
                   f"{trouble}; nothing was changed")


def apply(place: NodeContext, lease: TimedLimit) -> str:
    """"": taken without a word, which proves nothing."""
    if lease.what == "power":
        return place.limiter.set_power(lease.gpu_uuid, lease.wanted[0])
    return place.limiter.lock_clocks(lease.gpu_uuid, *lease.wanted)


def undo(place: NodeContext, lease: TimedLimit) -> str:
    """Back to what was before it, or else to the board's own."""
    if lease.what == "clocks":
        return (place.limiter.lock_clocks(lease.gpu_uuid, *lease.before) if lease.before
                else place.limiter.unlock_clocks(lease.gpu_uuid))
    found = place.limiter.read([lease.gpu_uuid])[lease.gpu_uuid]
    watts = lease.before[0] if lease.before else found.power_default_w
    if watts is None:
        return "neither what was before nor the board's own limit is known"
    return place.limiter.set_power(lease.gpu_uuid, watts)


def undone(place: NodeContext, lease: TimedLimit) -> str:
    """Why it is not; "": it is, or cannot be read."""
    found = place.limiter.read([lease.gpu_uuid])[lease.gpu_uuid]
    if found.trouble:
        return found.trouble
    if lease.what == "power" and lease.before and found.power_w is not None and (
            abs(found.power_w - lease.before[0]) >= 1.0):
        return f"the driver says {found.power_w:.0f} W, not {lease.before[0]:.0f} W"
    if lease.what == "clocks" and found.tells_lock and found.locked_mhz != (lease.before or None):
        return "the driver still says that clocks are locked"
    return ""


def judged_now(place: NodeContext, lease: TimedLimit) -> TimedLimit:
    """A driver takes a moment to say what it was told."""
    until = time.monotonic() + READ_BACK_WITHIN_S
    while True:
        found = place.limiter.read([lease.gpu_uuid]).get(lease.gpu_uuid)
        now = judged(lease, found, place.wall())
        if now.state in ("in_force", "unknown") or time.monotonic() > until:
            return now
        time.sleep(READ_EVERY_S)


def _as_wanted(lease: TimedLimit) -> TimedLimit:
    """Whatever differs now was never in force; nobody has changed it since."""
    return replace(lease, state="not_in_force")


def _priority(daemon: MpsDaemonHandle, priority: int) -> str:
    daemon.set_priority(priority)
    return _same(daemon.priority, priority)


def _same(read: Callable[[], object], wanted: object) -> str:
    """"": it reads back as wanted, soon."""
    until = time.monotonic() + MPS_WITHIN_S
    while (found := read()) != wanted and time.monotonic() < until:
        time.sleep(READ_EVERY_S)
    if found == wanted:
        return ""
    words = "nothing" if found in (None, "") else str(found)
    return f"it reads back {words}, not {wanted or 'no limit'}"
