"""Memory that a busy moment took is given back."""

import subprocess
import sys

CODE = """
import random, re, sys
from dashboard.runtime.heap import return_free_memory

def own_bytes():
    text = open("/proc/self/smaps_rollup").read()
    return 1_024 * int(re.search(r"Anonymous:\\s+(\\d+)", text)[1])

before = own_bytes()
busy = [bytes(random.randint(600, 9_000)) for _ in range(10_000)]
stays = bytes(700)  # at the end of the heap, which is all that libc looks at
busiest = own_bytes()
del busy
if sys.argv[1] == "return":
    return_free_memory(0.0, 0.0)
print(busiest - before, own_bytes() - before)
"""


def _grown(what: str) -> tuple[float, float]:
    child = subprocess.run([sys.executable, "-c", CODE, what], capture_output=True, text=True,
                           check=True)
    busiest, remaining = map(float, child.stdout.split())
    return busiest, remaining


def test_what_is_free_inside_the_heap_goes_back() -> None:
    for what, most, least in (("return", 0.3, 0.0), ("keep", 1.1, 0.7)):
        busiest, remaining = _grown(what)
        assert busiest > 30e6
        assert least * busiest <= remaining <= most * busiest, what
