"""Opens the sign-in link in the browser of this desktop."""

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
    """The link's code must not stand in a command line, where every user of the machine could read
    it and use it first: the browser is given a file that only its user can read."""

    def __init__(self, data: Path, env: Mapping[str, str]) -> None:
        self._file = data / FILE
        self._env = env

    def open(self, url: str) -> str:
        """Why not; "": it is being opened."""
        why = why_none(self._env)
        if not why:
            write_private(self._file, PAGE.format(url=html.escape(url)))
            # One that runs in the terminal would return when it is closed.
            Thread(target=webbrowser.open, args=(self._file.as_uri(),), daemon=True).start()
        return why


def why_none(env: Mapping[str, str], platform: str = sys.platform) -> str:
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
        return "this is a session over SSH; open the link where your browser is"
    has_display = any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if not has_display and platform != "darwin":
        return "this session has no display"
    return ""
