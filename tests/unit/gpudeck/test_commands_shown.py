"""Command lines as they are shown: by the terminal and by the pages alike."""

import json
import subprocess
from pathlib import Path

import pytest

from gpudeck.words.command_lines import short_command
from tests.machine import required

MODULE = Path(__file__).parents[3] / "assets/parts/commands.mjs"
TABLE: dict[str | None, str] = {
    "/opt/conda/bin/python3.11 -u /home/ana/train.py --config a.yaml": "train.py --config a.yaml",
    "python -m torch.distributed.run x.py": "python -m torch.distributed.run x.py",
    "/usr/bin/python3 -u -m vllm.entry /m": "python3 -m vllm.entry /m",
    "python -W ignore -X dev run.py": "run.py",
    "/usr/bin/vllm serve m": "vllm serve m",
    "python": "python",
    "/usr/bin/python3 -u": "python3 -u",
    "python -c import": "python -c import",
    "/bin/sh - x": "sh - x",
    "dash /a/b.sh": "b.sh",
    "/bin/": "/bin/",
    "": "",
    "bash -e ./go.sh 1": "go.sh 1",
    "s3://bucket/x.py 1": "s3://bucket/x.py 1",
    "<b>/x</b> /y": "<b>/x</b> /y",
    "python /home/müller/train.py": "/home/müller/train.py",
    "pythonic /a/b": "pythonic /a/b",
    "python\n/x": "python\n/x",
    None: "command unknown",
}


@pytest.mark.parametrize("command", TABLE)
def test_commands_begin_with_the_script(command: str | None) -> None:
    assert short_command(command) == TABLE[command]


def test_pages_show_the_same() -> None:
    code = (f"import {{ shortCommand }} from {json.dumps(MODULE.as_uri())};"
            f"console.log(JSON.stringify({json.dumps([*TABLE])}.map(shortCommand)))")
    answer = subprocess.run([required("node"), "--input-type=module", "-e", code],
                            capture_output=True, check=True, text=True)
    assert json.loads(answer.stdout) == [*TABLE.values()]
