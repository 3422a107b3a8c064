"""What the settings of MPS share: a daemon that must answer, and how its clients are named."""

from collections.abc import Iterator
from pathlib import Path

from gpudeck.actions import Refusal
from gpudeck.limits import MpsSetting

from ...limits.mps import path_trouble
from .setting_kind import MpsPreview, listed, many


def needs_daemon(setting: MpsSetting, preview: MpsPreview) -> Iterator[Refusal]:
    daemon, server = preview.daemon, getattr(setting, "server", None)
    if trouble := path_trouble(Path(setting.pipes)):
        yield Refusal("setting", trouble)
    elif not daemon.is_alive:
        yield Refusal("setting", daemon.trouble)
    elif server is not None and server not in {each.pid for each in daemon.servers}:
        yield Refusal("setting", f"there is no MPS server {server} in {setting.pipes}; it has "
                                 f"{listed([str(each.pid) for each in daemon.servers])}")


def client_names(preview: MpsPreview) -> str:
    return listed([f"{client.user or 'owner unknown'} ({client.pid})"
                   for client in preview.daemon.clients])


def clients_lose(preview: MpsPreview) -> Iterator[str]:
    if clients := preview.daemon.clients:
        yield (f"{many(len(clients), 'running client')} will lose what they do on the GPU: "
               f"{client_names(preview)}. They have {preview.grace_s:.0f} s to leave by "
               "themselves.")


def daemon_trouble(preview: MpsPreview) -> Iterator[str]:
    daemon = preview.daemon
    if daemon.trouble and daemon.is_alive:
        yield daemon.trouble[:1].upper() + daemon.trouble[1:]
