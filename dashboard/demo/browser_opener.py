"""Opening of the sign-in link in the browser of this desktop."""

import html
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from ..runtime.data_folder import write_private

FILE = "open.html"
PAGE = """<!doctype html><meta charset="utf-8"><title>gpudeck</title>
<meta http-equiv="refresh" content="0; url={url}"><p><a href="{url}">Open gpudeck</a></p>
"""


class BrowserOpener:
    """Opens a link by a file that only its user can read: on a command line every user of the
    machine could read the link's code and use it first."""

    def __init__(self, data: Path, env: Mapping[str, str]) -> None:
        self._file = data / FILE
        self._env = env

    def open(self, url: str) -> str:
        """Open the link, or return the reason why no browser can be opened; "": it is opening."""
        reason = reason_unavailable(self._env)
        if not reason:
            write_private(self._file, PAGE.format(url=html.escape(url)))
            # A browser in the terminal would return only when it is closed.
            Thread(target=webbrowser.open, args=(self._file.as_uri(),), daemon=True).start()
        return reason


def reason_unavailable(env: Mapping[str, str], platform: str = sys.platform) -> str:
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
        return "this is a session over SSH; open the link where your browser is"
    has_display = any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if not has_display and platform != "darwin":
        return "this session has no display"
    return ""
