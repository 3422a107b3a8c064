"""`gpudeck up --open`: the browser of this desktop, and a link that nobody else can read."""

import os
import random
import stat
from pathlib import Path

import pytest

from dashboard.demo.browser_opener import BrowserOpener, reason_unavailable
from tests.demos import soon

CODE = f"{random.randrange(10**12)}&amp"


def test_the_code_of_the_link_is_in_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    record = tmp_path / "told"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf %s "$*" > {record}.new && mv {record}.new {record}\n')
    script.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    url = f"http://127.0.0.1:1/sign-in?code={CODE}"
    assert BrowserOpener(tmp_path, {"BROWSER": str(script)}).open(url) == ""
    assert soon(record.exists, 10.0)
    argument = record.read_text()
    assert CODE not in argument
    file = Path(argument.removeprefix("file://"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert url.replace("&", "&amp;") in file.read_text()


@pytest.mark.parametrize(("env", "platform", "says"), [
    ({"DISPLAY": ":0"}, "linux", ""), ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", ""),
    ({}, "darwin", ""), ({}, "linux", "no display"),
    ({"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, "linux", "SSH"),
    ({"SSH_TTY": "/dev/pts/1"}, "darwin", "SSH")])
def test_where_there_is_no_desktop_it_says_so(env: dict[str, str], platform: str, says: str,
                                              tmp_path: Path) -> None:
    assert says in reason_unavailable(env, platform)
    assert bool(reason_unavailable(env, platform)) == bool(says)
    if says:
        assert BrowserOpener(tmp_path, {"SSH_TTY": "x"} | env).open("http://a") != ""
        assert not [*os.scandir(tmp_path)]
