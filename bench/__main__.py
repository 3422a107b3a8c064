"""`make bench`: every figure beside its goal or its peer, measured in one run."""

import sys

from bench import acts, agent, history, ingest, start
from bench.figure import Figure, write


def main() -> int:
    found: list[Figure] = []
    for part in (agent, start, ingest, acts, history):
        for figure in part.figures():
            print(figure.line, flush=True)
            found.append(figure)
    write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
