"""The mutants still fit the code. That each is caught: `make mutants`."""

from dataclasses import replace

from tests.mutants import ROOT, Mutant, fault_of, main, mutants


def test_each_fits_the_code_and_names_a_test() -> None:
    wrong = [f"{mutant.name}: {flaw}" for mutant in mutants() if (flaw := mutant.flaw())]
    for mutant in mutants():
        file, _, test = mutant.test.partition("::")
        if f"def {test.partition('[')[0].rpartition('::')[2]}(" not in (ROOT / file).read_text():
            wrong.append(f"{mutant.name}: there is no {mutant.test}")
    assert wrong == []


def test_some_by_lot_are_caught() -> None:
    assert main(["--some", "3"]) == 0


def test_what_does_not_fit_is_said() -> None:
    one = mutants()[0]
    assert "0 times" in replace(one, old="no such text").flaw()
    assert "nothing" in replace(one, new=one.old).flaw()


def test_a_mutant_that_removes_no_guard_is_missed() -> None:
    """The control arm."""
    first = (ROOT / "gpudeck/system/child_processes.py").read_text().splitlines()[0]
    idle = Mutant("idle", "tests/unit/gpudeck/test_metrics.py::test_lookup",
                  "gpudeck/system/child_processes.py", first, first + "\n")
    assert "passes without the guard" in fault_of(idle)
