"""Two hubs with all that a site past one machine has, of which the active hub and PostgreSQL are
killed: every sample is there, and every command once. `python -m tests.faults.scale` kills and
stops each part, and takes times."""

from pathlib import Path

from tests.faults.scale.faults import FAULTS
from tests.faults.scale.matrix import QUICK, run_matrix
from tests.faults.scale.site import a_site


def test_no_sample_and_no_command_is_lost_or_doubled(tmp_path: Path) -> None:
    with a_site(tmp_path, QUICK.nodes) as site:
        outcome = run_matrix(site, [fault for fault in FAULTS if fault.is_quick], QUICK, print)
    print(outcome.table)
    assert outcome.flaws == []
