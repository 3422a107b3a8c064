"""Look-ups for the environment of a leased command."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from agent.cli.pool_request import split_command
from agent.cli.run import line_of
from agent.cli.run_environment import installed_version


def script(folder: Path, first: str) -> str:
    path = folder / "train"
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return str(path)


def test_the_version_is_of_the_python_that_runs_the_command(tmp_path: Path) -> None:
    env = dict(os.environ)
    release = version("msgspec")
    assert installed_version([sys.executable, "train.py"], env, "msgspec") == release
    assert installed_version([script(tmp_path, f"#!{sys.executable}")], env, "msgspec") == release
    own = {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    assert installed_version([script(tmp_path, "#!/usr/bin/env python")], own, "msgspec") == release
    assert installed_version([sys.executable], env, "no-such-distribution") is None


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/usr/bin/env", "", "\x7fELF\x02\x01"])
def test_whose_python_cannot_be_told_has_no_version(tmp_path: Path, first: str) -> None:
    assert installed_version([script(tmp_path, first)], dict(os.environ), "msgspec") is None
    assert installed_version(["no-such-program"], dict(os.environ), "msgspec") is None
    assert installed_version([], dict(os.environ), "msgspec") is None


def test_the_line_for_another_node_asks_for_the_same_and_for_no_third_node() -> None:
    words = ["--gpus", "2", "--ssh", "--for", "8 h", "--", "echo", "a b", "--ssh"]
    assert line_of(*split_command(words)) == (
        f"cd {os.getcwd()} && gpudeck run --gpus 2 --for '8 h' -- echo 'a b' --ssh")
