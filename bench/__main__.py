"""`make bench`: every figure beside its goal or its peer, measured in one run.

`python -m bench NAME …` measures some groups only. Each group's figures replace those of the run
before in results.json as soon as they are there; the others stay, with the time they were measured.
A group that fails says so, and the others go on. `--quick`: each at its smallest size, in a minute
and a half, to see that all of it runs; nothing is written.
"""

import os
import sys
import traceback
from types import ModuleType

from bench import (
    acts,
    agent,
    growth,
    history,
    history_peers,
    ingest,
    insight,
    page,
    pool,
    rules,
    scale,
    scrape,
    start,
    ten_thousand,
)
from bench.figure import Figure, write
from bench.machine import machine
from tests.check import commit

# Each measures `figures` of a size, which are WHOLE or QUICK.
GROUPS: dict[str, ModuleType] = {
    "agent": agent, "start": start, "ingest": ingest, "ten_thousand": ten_thousand, "page": page,
    "growth": growth, "acts": acts, "history": history, "scrape": scrape,
    "rules": rules, "insight": insight, "pool": pool,
    "history_peers": history_peers, "scale": scale,
}


def main(argv: list[str]) -> int:
    is_quick, names = "--quick" in argv, [word for word in argv if word != "--quick"]
    strange = [name for name in names if name not in GROUPS]
    if strange:
        print(f"no group {', '.join(strange)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or GROUPS:
        try:
            measure(name, is_quick)
        except Exception:  # of any kind: the other groups are worth their time
            traceback.print_exc()
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def measure(name: str, is_quick: bool) -> None:
    print(f"-- {name}", flush=True)
    load, measured = os.getloadavg()[0], list[Figure]()
    group = GROUPS[name]
    for figure in group.figures(group.QUICK if is_quick else group.WHOLE):
        print(figure.line, flush=True)
        measured.append(figure)
    if not is_quick:
        write(measured, group=name, groups=GROUPS, run={
            "commit": commit(), "machine": machine(), "load": [load, os.getloadavg()[0]]})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
