"""Cost of a demo, as it reports it."""

import os
import re
import signal
import subprocess
import sys

from dashboard.demo.cost import DemoCostMeter
from tests.demos import soon

# A child that does nothing, of which a child burns.
OUTER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "while True: pass"])
sys.stdin.read()
"""


def test_what_is_told_is_what_was_taken_with_all_children() -> None:
    idle = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    outer = subprocess.Popen([sys.executable, "-c", OUTER], stdin=subprocess.PIPE,
                             start_new_session=True)
    bill = DemoCostMeter(lambda: {"idle": [idle.pid], "busy": [outer.pid], "nobody": []},
                         over_s=1.0)
    lines: list[str] = []

    def is_told() -> bool:
        line = bill.line()
        lines.extend([] if line is None else [line])
        return bool(lines)

    try:
        assert soon(is_told, 10)
        costs = {name: (float(cpu), float(memory)) for name, cpu, memory in re.findall(
            r"(\w+) ([\d.]+) %, (\d+) MB", lines[0])}
        assert set(costs) == {"idle", "busy"}
        assert costs["busy"][0] > 15 > costs["idle"][0]
        assert costs["busy"][1] > costs["idle"][1] > 1
        assert bill.line() is None, "once"
    finally:
        os.killpg(outer.pid, signal.SIGKILL)
        idle.kill()
        for process in (idle, outer):
            process.communicate()
