"""Real faults: one cause, one notification. Those of the table in docs/rules.md that are notified
within a minute and a half, all at once; `python -m tests.faults.matrix` takes all of them, until
they are over."""

from pathlib import Path

from tests.faults.matrix.observation import QUICK, a_site
from tests.faults.matrix.table import FAULTS


def test_each_cause_is_told_once(tmp_path: Path) -> None:
    with a_site(tmp_path, [fault for fault in FAULTS if fault.is_quick]) as site:
        site.observe(QUICK, print)
    assert [flaw for observation in site.observations for flaw in observation.flaws] == []
    assert site.beside == []
