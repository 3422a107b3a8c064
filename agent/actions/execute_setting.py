"""Does one setting: looks again, sets, reads back. What was said counts as applied, what was read
back as in force, and they are told apart. Blocks; on the thread of acts."""

from collections.abc import Callable

from gpudeck.actions import ActionVerification, Command, Refusal, Reply
from gpudeck.limits import GpuSetting

from . import preview_setting
from .context import NodeContext
from .kinds.setting_kind import Applied, SettingAct
from .kinds.table import GPU_KINDS, MPS_KINDS
from .kinds.task_kind import ActionRefusedError, Outcome
from .preview import PreviewRequest
from .signals import ProcessHandles, is_same, living


class SettingExecution:
    def __init__(
        self, context: NodeContext, command: Command, reply: Reply,
        say: Callable[[Reply, str], Reply],
    ) -> None:
        assert command.preview is not None
        self._act = SettingAct(context, command, command.preview, reply, say)

    @property
    def reply(self) -> Reply:
        return self._act.reply

    def do(self) -> Outcome:
        self._look_again()
        with ProcessHandles() as grips:
            watched = [(each, grips.take(each.process.pid)) for each in self._act.shown.bystanders]
            known = [(each, grip) for each, grip in watched if grip is not None
                     and (facts := grip.facts()) is not None
                     and is_same(facts.identity, each.process)]
            applied, in_force, step = self._set()
            alive = set(living([grip for _, grip in known]))
            vanished = tuple(each.task_id for each, grip in known if grip not in alive)
        verified = ActionVerification(applied=applied, in_force=in_force, vanished=vanished,
                                      bystanders_alive=not vanished if known else None)
        is_done = applied and in_force is not False and not vanished
        return ("done" if is_done else "not_effective"), None, verified, step

    def _set(self) -> Applied:
        setting = self._act.shown.params.setting
        assert setting is not None
        if isinstance(setting, GpuSetting):
            return GPU_KINDS[type(setting)].do(self._act, setting)
        daemon = self._act.context.limits.mps.daemon(setting.pipes)
        return MPS_KINDS[type(setting)].do(self._act, daemon, setting)

    def _look_again(self) -> None:
        shown = self._act.shown
        request = PreviewRequest(shown.ask_id, shown.nonce, shown.action, shown.params,
                                 shown.task_id)
        now = preview_setting.preview(self._act.context, request, self._act.command.asker.kind)
        if now.refusals:
            raise ActionRefusedError(now.refusals[0])
        if now.changes != shown.changes:
            raise ActionRefusedError(Refusal(
                "changed", "what it is now is not what was shown; nothing was touched. Look "
                           "again."))
        before = {victim.process for victim in shown.victims}
        if any(victim.process not in before for victim in now.victims):
            raise ActionRefusedError(Refusal(
                "changed", "there are clients now that were not shown; nothing was touched. Look "
                           "again."))
