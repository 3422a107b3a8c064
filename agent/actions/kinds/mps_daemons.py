"""Starts a control daemon of MPS, stops it, and starts another one with the same defaults. When one
is stopped, its clients lose what they do on the GPU."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpudeck.contract.actions import Refusal
from gpudeck.contract.limits import MpsRestart, MpsStart, MpsStop, SettingChange

from ...journal.store import JournalError
from ...limits.apply import MODES
from ...limits.mps import LocalMpsDaemons, MpsControlError, MpsDaemonHandle, path_trouble
from ...limits.mps_store import Default, MpsSettingStore, as_it_is
from .execution import ActionExecution, ActionRefusedError
from .set_mps import client_names, daemon_trouble, needs_daemon, set_values, store_wanted
from .setting_kind import Applied, Changes, MpsPreview, SettingKind, listed, many


def _start_flaws(setting: MpsStart, preview: MpsPreview) -> Iterator[Refusal]:
    if trouble := path_trouble(Path(setting.pipes)):
        yield Refusal("setting", trouble)
    elif preview.daemon.is_alive:
        yield Refusal("setting", f"a control daemon answers in {setting.pipes} already")
    elif not _may_begin(preview.context.limits.mps, Path(setting.pipes)):
        yield Refusal("setting", f"{setting.pipes} is neither the pipe directory of the agent's "
                                 "own environment nor a folder that is its alone; make it so, or "
                                 "set CUDA_MPS_PIPE_DIRECTORY for the agent")


def _may_begin(mps: LocalMpsDaemons, pipes: Path) -> bool:
    """Refuse other folders: nobody who may order this can have root make sockets anywhere."""
    if pipes == mps.daemons()[0].folder:
        return True
    try:
        about = os.lstat(pipes)
    except OSError:
        return False
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022


def _start_do(act: ActionExecution, setting: MpsStart) -> Applied:
    daemon = act.context.limits.mps.daemon(setting.pipes)
    trouble = daemon.start()
    return not trouble, daemon.is_alive(), trouble or f"it answers in {setting.pipes}"


def _stop_warnings(_setting: MpsStop, preview: MpsPreview) -> Iterator[str]:
    yield from _clients_lose(preview)
    yield from daemon_trouble(preview)
    yield from _stay_exclusive(preview)


def _stay_exclusive(preview: MpsPreview) -> Iterator[str]:
    """Stopping MPS does not open its GPUs again."""
    applier = preview.context.limits.applier
    if preview.snapshot is None or applier.trouble():
        return
    read = applier.read([*preview.snapshot.fresh.mem_used_bytes])
    closed = [uuid for uuid, limits in read.items()
              if limits.compute_mode == MODES["exclusive_process"]]
    if closed:
        is_one = len(closed) == 1
        yield (f"{many(len(closed), 'GPU')} stay{'s' * is_one} in exclusive mode, one process at a "
               f"time: {listed(closed)}. `gpudeck gpu mode UUID default` opens "
               f"{'it' if is_one else 'each'} again.")


def _stop_do(act: ActionExecution, setting: MpsStop) -> Applied:
    applied, is_gone, words = _stop(act, act.context.limits.mps.daemon(setting.pipes), setting)
    return applied, is_gone, words + (store_wanted(act, setting) if is_gone else "")


def _stop(act: ActionExecution, daemon: MpsDaemonHandle, setting: MpsStop | MpsRestart
         ) -> tuple[bool, bool, str]:
    grace_s = round(act.preview.params.grace_s)
    _warn_clients(act, setting.pipes, grace_s)
    act.report(f"the daemon was asked to quit; clients have {grace_s} s to leave")
    try:
        trouble = daemon.quit(grace_s)
    except MpsControlError as why:
        raise ActionRefusedError(Refusal("setting", f"{why}; nothing was changed")) from why
    return not trouble, not trouble, trouble or "no daemon answers there any more"


def _warn_clients(act: ActionExecution, pipes: str, grace_s: int) -> None:
    """Warn the clients before, so that they can save."""
    by, reason = act.command.asker, act.command.reason
    for uid in {victim.process.uid for victim in act.preview.victims}:
        act.context.people.notify(uid, [f"gpudeck: {by.name} ({by.kind}) stops MPS in {pipes}",
                   f"  Its clients lose what they do on the GPU in {grace_s} s.",
                   f"  Reason: {reason}" if reason else ""])


def _restart_warnings(_setting: MpsRestart, preview: MpsPreview) -> Iterator[str]:
    yield from _clients_lose(preview)
    yield ("The defaults are set again afterwards, memory limits that gpudeck has not set in whole "
           "GiB, as MPS shows them; what was set for single servers is lost with them.")
    yield from daemon_trouble(preview)


def _restart_do(act: ActionExecution, setting: MpsRestart) -> Applied:
    daemon = act.context.limits.mps.daemon(setting.pipes)
    store = act.context.limits.mps_settings
    before, left_out = as_it_is(daemon, setting.pipes, _stored_defaults(store, str(daemon.folder)))
    applied, is_gone, words = _stop(act, daemon, setting)
    if not is_gone:
        return applied, False, words
    act.report("it has ended; it is started again")
    if trouble := daemon.start():
        return False, False, f"it has ended and does not start again: {trouble}"
    if wrong := [*left_out, *_restore(store, daemon, before)]:
        return True, False, "started again; of its defaults not in force: " + "; ".join(wrong)
    return True, True, "started again, with the same defaults"


def _stored_defaults(store: MpsSettingStore, pipes: str) -> tuple[Default, ...]:
    """Return the defaults as gpudeck has set them: MPS itself shows whole GiB."""
    try:
        return tuple(default for default in store.defaults() if default.pipes == pipes)
    except JournalError:
        return ()


def _restore(store: MpsSettingStore, daemon: MpsDaemonHandle, before: Iterable[Default]
              ) -> list[str]:
    """Set the defaults again; return what is not. A refused one keeps no other from being set."""
    wrong = []
    for default in before:
        try:
            wrong += set_values(store, daemon, default)
        except (MpsControlError, ValueError) as why:  # others may have set what is out of our range
            wrong.append(str(why))
    return [message for message in wrong if message]


def _clients_lose(preview: MpsPreview) -> Iterator[str]:
    if clients := preview.daemon.clients:
        yield (f"{many(len(clients), 'running client')} will lose what they do on the GPU: "
               f"{client_names(preview)}. They have {preview.grace_s:.0f} s to leave by "
               "themselves.")


def _changes(before: str, after: str) -> Changes:
    return lambda setting, _preview: (
        SettingChange(f"control daemon in {setting.pipes}", before, after),)


START_MPS = SettingKind(MpsStart, _start_flaws, _changes("none", "runs"),
                        lambda _setting, preview: daemon_trouble(preview), _start_do)
STOP_MPS = SettingKind(MpsStop, needs_daemon, _changes("runs", "none"), _stop_warnings, _stop_do)
RESTART_MPS = SettingKind(MpsRestart, needs_daemon,
                          _changes("runs", "another one, with the same defaults"),
                          _restart_warnings, _restart_do)
