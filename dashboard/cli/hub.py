"""`gpudeck hub`."""

import os
from collections.abc import Sequence

from ..serve import serve
from ..settings import hub_settings


def hub(argv: Sequence[str]) -> int:
    return serve(hub_settings(argv, os.environ))
