"""Mirroring of history to the receiver in the settings, if there is one."""

import time

from ..composition import Capability, Core
from ..history.reads.copying import HistoryCopyReader
from ..history.reads.embedded import EmbeddedHistory
from .position import MirrorFolder
from .prometheus import mirror_families
from .service import MirrorService
from .transport import MirrorReceiver


def build(core: Core) -> Capability:
    settings = core.settings
    if settings.mirror is None:
        return Capability()
    mirror = MirrorService(
        HistoryCopyReader(core.get(EmbeddedHistory).store),
        MirrorReceiver(settings.mirror, settings.mirror_user, settings.mirror_secret),
        MirrorFolder(settings.data / "mirror"), settings.mirror, time.time())
    return Capability(loops=(mirror.loop,), hub_metrics=lambda: mirror_families(mirror))
