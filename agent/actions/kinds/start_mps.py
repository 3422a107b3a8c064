"""Starts a control daemon of MPS."""

import os
from collections.abc import Iterator
from pathlib import Path

from gpudeck.actions import Refusal
from gpudeck.limits import MpsStart, SettingChange

from ...limits.mps import LocalMpsDaemons, path_trouble
from .execution import ActionExecution
from .mps_daemon import daemon_trouble
from .setting_kind import Applied, MpsPreview, SettingKind


def flaws(setting: MpsStart, preview: MpsPreview) -> Iterator[Refusal]:
    if trouble := path_trouble(Path(setting.pipes)):
        yield Refusal("setting", trouble)
    elif preview.daemon.is_alive:
        yield Refusal("setting", f"a control daemon answers in {setting.pipes} already")
    elif not _may_begin(preview.context.limits.mps, Path(setting.pipes)):
        yield Refusal("setting", f"{setting.pipes} is neither the pipe directory of the agent's "
                                 "own environment nor a folder that is its alone; make it so, or "
                                 "set CUDA_MPS_PIPE_DIRECTORY for the agent")


def _may_begin(mps: LocalMpsDaemons, pipes: Path) -> bool:
    """Nobody who may order this can have root make sockets wherever he likes."""
    if pipes == mps.daemons()[0].folder:
        return True
    try:
        about = os.lstat(pipes)
    except OSError:
        return False
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022


def changes(setting: MpsStart, _preview: MpsPreview) -> tuple[SettingChange, ...]:
    return (SettingChange(f"control daemon in {setting.pipes}", "none", "runs"),)


def warnings(_setting: MpsStart, preview: MpsPreview) -> Iterator[str]:
    return daemon_trouble(preview)


def do(act: ActionExecution, setting: MpsStart) -> Applied:
    daemon = act.context.limits.mps.daemon(setting.pipes)
    trouble = daemon.start()
    return not trouble, daemon.is_alive(), trouble or f"it answers in {setting.pipes}"


START_MPS = SettingKind(MpsStart, flaws, changes, warnings, do)
