"""`gpudeck hub`, and `gpudeck hub backup|restore|migrate-state`."""

import os
from collections.abc import Sequence

from ..serve import serve
from ..settings import hub_settings
from .backup import backup_or_restore
from .migrate_state import migrate_state


def hub(argv: Sequence[str]) -> int:
    if argv and argv[0] in ("backup", "restore"):
        return backup_or_restore(argv)
    if argv and argv[0] == "migrate-state":
        return migrate_state(argv)
    return serve(hub_settings(argv, os.environ))
