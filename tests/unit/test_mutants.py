"""The kept patches that remove a guard still fit the code. That each is caught: `make mutants`."""

from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, apply, fault_of, main, named_test, patches


@pytest.mark.parametrize("patch", patches(), ids=lambda patch: patch.stem)
def test_a_patch_applies_and_names_a_test(patch: Path) -> None:
    assert apply(patch, ROOT, "--check") == ""
    file, _, test = named_test(patch).partition("::")
    assert f"def {test.partition('[')[0].rpartition('::')[2]}(" in (ROOT / file).read_text()


def test_some_by_lot_are_caught() -> None:
    assert main(["--some", "3"]) == 0


def test_a_patch_that_removes_nothing_is_missed(tmp_path: Path) -> None:
    """The control arm."""
    idle = tmp_path / "idle.patch"
    first, second = (ROOT / "gpudeck/child_processes.py").read_text().splitlines()[:2]
    idle.write_text("# must fail: tests/unit/gpudeck/test_metrics.py::test_lookup\n"
                    "--- a/gpudeck/lifeline.py\n+++ b/gpudeck/lifeline.py\n"
                    f"@@ -1,2 +1,3 @@\n {first}\n+\n {second}\n")
    assert "passes without the guard" in fault_of(idle)
