"""`make bench`: every figure beside its goal or its peer, measured in one run."""

import sys

from bench import acts, agent, history, history_peers, ingest, scrape, start
from bench.figure import Figure, write


def main() -> int:
    found: list[Figure] = []
    for part in (agent, start, ingest, acts, history, history_peers, scrape):
        for figure in part.figures():
            print(figure.line, flush=True)
            found.append(figure)
    write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
