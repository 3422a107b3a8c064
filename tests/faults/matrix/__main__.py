"""Program that causes the faults; see __init__.py."""

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
    words = " ".join(word for word in argv if word != "--quick")
    faults = [fault for fault in FAULTS
              if words in fault.name and (fault.is_quick or form is FULL)]
    with tempfile.TemporaryDirectory() as folder, a_site(Path(folder), faults) as site:
        site.observe(form, lambda words: print(words, flush=True))
    rows = {(row.fault, row.on): asdict(row) for row in map(measured, site.observations)}
    print("\n".join(map(json.dumps, rows.values())))
    flaws = [flaw for observation in site.observations for flaw in observation.flaws]
    flaws += [f"of no fault: {notice}" for notice in site.beside]
    print("\n".join(flaws) or "one notification of each cause")
    if not flaws and form is FULL:
        write(rows)
    return 1 if flaws else 0


def write(rows: dict[tuple[str, str], dict[str, object]]) -> None:
    """Write the measured rows; the other rows stay as they were."""
    stored = {(row["fault"], row.get("on", "")): row for row in json.loads(MEASURED.read_text())}
    merged = {**stored, **rows}
    keys = [(fault.name, ON[fault.where]) for fault in FAULTS]
    all_rows = [merged[key] for key in keys if key in merged]
    MEASURED.write_text("[\n" + ",\n".join(map(json.dumps, all_rows)) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
