"""Program that runs the scale matrix; see __init__.py."""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.machine import machine
from tests.check import commit
from tests.faults.scale.faults import FAULTS
from tests.faults.scale.matrix import FULL, QUICK, Outcome, run_matrix
from tests.faults.scale.nodes import GPUS
from tests.faults.scale.site import a_site
from tests.integration.hubs import REPOSITORY

RESULTS = REPOSITORY / "build" / "scale.json"


def main(argv: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its children end with it
    args = _parser().parse_args(argv)
    form, words = QUICK if args.quick else FULL, " ".join(args.words)
    faults = [fault for fault in FAULTS
              if words in fault.name and (fault.is_quick or form is FULL)]
    nodes, load = args.nodes or form.nodes, os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, a_site(Path(folder), nodes) as site:
        outcome = run_matrix(site, faults, form, lambda line: print(line, flush=True))
    print(f"{nodes * GPUS:,} GPUs at 1 Hz, two hubs\n{outcome.table}")
    _write(outcome, {"gpus": nodes * GPUS, "commit": commit(), "machine": machine(),
                     "load": [load, os.getloadavg()[0]]})
    return 1 if outcome.flaws else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.scale")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nodes", type=int)
    return parser


def _write(outcome: Outcome, run: dict[str, object]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(run | asdict(outcome), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
