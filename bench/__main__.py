"""`make bench`: every figure beside its goal or its peer, measured in one run.

`python -m bench NAME …` measures some groups only. Each group's figures replace those of the run
before in results.json as soon as they are there; the others stay, with the time they were measured.
"""

import sys
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
    scrape,
    start,
    ten_thousand,
)
from bench.figure import Figure, write

GROUPS: dict[str, ModuleType] = {
    "agent": agent, "start": start, "ingest": ingest, "ten_thousand": ten_thousand, "page": page,
    "growth": growth, "acts": acts, "history": history, "scrape": scrape,
    "rules": rules, "insight": insight, "pool": pool,
    "history_peers": history_peers,
}


def main(argv: list[str]) -> int:
    strange = [name for name in argv if name not in GROUPS]
    if strange:
        print(f"no group {', '.join(strange)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    for name in argv or GROUPS:
        found: list[Figure] = []
        for figure in GROUPS[name].figures():
            print(figure.line, flush=True)
            found.append(figure)
        write(found, group=name, groups=GROUPS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
