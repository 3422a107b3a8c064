"""Stops a control daemon of MPS; its clients lose what they do on the GPU."""

from collections.abc import Iterator

from gpudeck.actions import Refusal
from gpudeck.limits import MpsRestart, MpsStop, SettingChange

from ...limits.apply import MODES
from ...limits.mps import MpsControlError, MpsDaemonHandle
from ...tasks.terminals import tell
from .execution import ActionExecution, ActionRefusedError
from .mps_daemon import clients_lose, daemon_trouble, needs_daemon
from .set_mps import store_wanted
from .setting_kind import Applied, MpsPreview, SettingKind, listed, many


def changes(setting: MpsStop, _preview: MpsPreview) -> tuple[SettingChange, ...]:
    return (SettingChange(f"control daemon in {setting.pipes}", "runs", "none"),)


def warnings(_setting: MpsStop, preview: MpsPreview) -> Iterator[str]:
    yield from clients_lose(preview)
    yield from daemon_trouble(preview)
    yield from _stay_exclusive(preview)


def _stay_exclusive(preview: MpsPreview) -> Iterator[str]:
    """Stopping MPS does not open its GPUs again."""
    applier = preview.context.limits.applier
    if preview.found is None or applier.trouble():
        return
    read = applier.read([*preview.found.fresh.mem_used_bytes])
    closed = [uuid for uuid, limits in read.items()
              if limits.compute_mode == MODES["exclusive_process"]]
    if closed:
        is_one = len(closed) == 1
        yield (f"{many(len(closed), 'GPU')} stay{'s' * is_one} in exclusive mode, one process at a "
               f"time: {listed(closed)}. `gpudeck gpu mode UUID default` opens "
               f"{'it' if is_one else 'each'} again.")


def do(act: ActionExecution, setting: MpsStop) -> Applied:
    applied, is_gone, words = stop(act, act.context.limits.mps.daemon(setting.pipes), setting)
    return applied, is_gone, words + (store_wanted(act, setting) if is_gone else "")


def stop(act: ActionExecution, daemon: MpsDaemonHandle, setting: MpsStop | MpsRestart
         ) -> tuple[bool, bool, str]:
    grace_s = round(act.shown.params.grace_s)
    _tell_clients(act, setting.pipes, grace_s)
    act.say(f"the daemon was told to quit; clients have {grace_s} s to leave")
    try:
        trouble = daemon.quit(grace_s)
    except MpsControlError as why:
        raise ActionRefusedError(Refusal("setting", f"{why}; nothing was changed")) from why
    return not trouble, not trouble, trouble or "no daemon answers there any more"


def _tell_clients(act: ActionExecution, pipes: str, grace_s: int) -> None:
    """Before, so that they can save."""
    by, reason = act.command.asker, act.command.reason
    for uid in {victim.process.uid for victim in act.shown.victims}:
        tell(uid, [f"gpudeck: {by.name} ({by.kind}) stops MPS in {pipes}",
                   f"  Its clients lose what they do on the GPU in {grace_s} s.",
                   f"  Reason: {reason}" if reason else ""])


STOP_MPS = SettingKind(MpsStop, needs_daemon, changes, warnings, do)
