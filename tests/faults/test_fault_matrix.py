"""One cause, one notification, by real faults: those of the table in docs/rules.md that are told
within a minute and a half, all at once. `python -m tests.faults.matrix` takes all of them, until
they are over."""

from pathlib import Path

from tests.faults.matrix.observation import QUICK, a_site
from tests.faults.matrix.table import FAULTS


def test_each_cause_is_told_once(tmp_path: Path) -> None:
    with a_site(tmp_path, [each for each in FAULTS if each.is_quick]) as site:
        site.observe(QUICK, print)
    assert [flaw for each in site.observations for flaw in each.flaws] == []
    assert site.beside == []
