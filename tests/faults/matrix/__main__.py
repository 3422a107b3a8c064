"""Brings them about; see __init__.py."""

import json
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.faults.matrix.faults import ON
from tests.faults.matrix.observation import FULL, QUICK, a_site
from tests.faults.matrix.table import FAULTS, MEASURED, measured


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its children end with it
    form = QUICK if "--quick" in argv else FULL
    wanted = " ".join(word for word in argv if word != "--quick")
    faults = [each for each in FAULTS
              if wanted in each.name and (each.is_quick or form is FULL)]
    with tempfile.TemporaryDirectory() as folder, a_site(Path(folder), faults) as site:
        site.observe(form, lambda words: print(words, flush=True))
    rows = {(each.fault, each.on): asdict(each) for each in map(measured, site.observations)}
    print("\n".join(map(json.dumps, rows.values())))
    flaws = [flaw for each in site.observations for flaw in each.flaws]
    flaws += [f"of no fault: {notice}" for notice in site.beside]
    print("\n".join(flaws) or "one notification of each cause")
    if not flaws and form is FULL:
        write(rows)
    return 1 if flaws else 0


def write(rows: dict[tuple[str, str], dict[str, object]]) -> None:
    """The others stay as they were."""
    known = {(row["fault"], row.get("on", "")): row for row in json.loads(MEASURED.read_text())}
    found = {**known, **rows}
    kept = [found[key] for each in FAULTS if (key := (each.name, ON[each.where])) in found]
    MEASURED.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
