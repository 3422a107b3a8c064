"""IPython at a terminal, where nothing that was printed can be changed."""

import subprocess
import sys

# Long enough for the pictures after which a notebook's still is renewed, and two cells that end.
SCRIPT = """
import time
from IPython.core.getipython import get_ipython
from gpudeck.notebook import watch
shown = watch(simulate="h100x2")
while not shown.picture.get("gpus"):
    time.sleep(0.1)
shell, seen = get_ipython(), []
shown.observe(lambda change: seen.append(change), "picture")
shell.run_cell("shown")
while len(seen) < 5:
    time.sleep(0.1)
shell.run_cell("1 + 1")
shown.close()
"""


def test_a_widget_is_printed_once() -> None:
    """Found by visitors: a script of five lines printed its table four times."""
    result = subprocess.run([sys.executable, "-m", "IPython", "--no-banner", "-c", SCRIPT],
                            capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.count("NVIDIA H100") == 2, result.stdout  # a row for each of its GPUs
