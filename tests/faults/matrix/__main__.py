"""Brings them about; see __init__.py."""

import json
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.faults.matrix.observation import FULL, QUICK, a_site
from tests.faults.matrix.table import FAULTS, measured


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its children end with it
    form = QUICK if "--quick" in argv else FULL
    wanted = " ".join(word for word in argv if word != "--quick")
    faults = [each for each in FAULTS
              if wanted in each.name and (each.is_quick or form is FULL)]
    with tempfile.TemporaryDirectory() as folder, a_site(Path(folder), faults) as site:
        site.observe(form, lambda words: print(words, flush=True))
    print("\n".join(json.dumps(asdict(measured(each))) for each in site.observations))
    flaws = [flaw for each in site.observations for flaw in each.flaws]
    flaws += [f"of no fault: {notice}" for notice in site.beside]
    print("\n".join(flaws) or "one notification of each cause")
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
