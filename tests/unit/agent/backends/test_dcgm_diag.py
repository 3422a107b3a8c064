"""`dcgmi diag -j` of DCGM 3 and 4: what condemns a board, and what does not."""

import json
import random
from typing import Any

import pytest

from agent.backends.nvml.dcgm_diag import judge

PERSISTENCE = {"warning": "Persistence mode for GPU 0 is disabled.", "error_id": 29,
               "error_category": 8, "error_severity": 5}


def four(*results: Any, test: str = "memory", before: str = "") -> str:
    return before + json.dumps({
        "DCGM Diagnostic": {"test_categories": [None, {"category": "Hardware", "tests": [
            {"name": test, "results": list(results), "test_summary": {"status": "Fail"}}]}]},
        "metadata": {"version": "4.2.3"}, "entity_groups": []})


def three(*results: Any) -> str:
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [
        {"category": "Integration", "tests": [{"name": "PCIe", "results": list(results)}]}]},
        "version": "3.3.5"})


def of(entity: int, status: str, *warnings: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": entity,
                           "status": status}
    return row | ({"warnings": list(warnings)} if warnings else {})


GPU = random.randrange(8)
OTHER = GPU + 1


@pytest.mark.parametrize(("text", "verdict"), [
    (four(of(GPU, "PASS"), of(OTHER, "FAIL", {"warning": "x", "error_severity": 1})), "passed"),
    (four(of(GPU, "Fail", {"warning": "bad DRAM", "error_severity": 2})), "failed"),
    (four(of(GPU, "Fail", {"warning": "bad DRAM"})), "failed"),  # no severity counts as real
    (four(of(GPU, "Fail")), "failed"),
    (four(of(GPU, "Pass"), of(GPU, "Fail", PERSISTENCE)), "passed"),
    (four(of(GPU, "Fail", PERSISTENCE)), "not_judged"),
    (four(of(GPU, "Fail", PERSISTENCE, {"warning": "ECC", "error_severity": 3})), "failed"),
    (four(of(GPU, "Skip"), None), "not_judged"),
    (four(of(OTHER, "Pass")), "not_judged"),
    (four({"status": "Fail", "warnings": ["no entity"]}), "failed"),
    (four(of(GPU, "Pass"), before="Warning: hostengine is old\n"), "passed"),
    (three({"gpu_ids": f"{OTHER}, {GPU}", "status": "Pass"}), "passed"),
    (three({"gpu_ids": str(GPU), "status": "FAIL", "warnings": ["link is x8"]}), "failed"),
    (three({"gpu_ids": str(10 + GPU), "status": "FAIL"}), "not_judged"),
    ("", "not_judged"), ("Error: unable to connect to the host engine", "not_judged"),
    ("[1]", "not_judged"), ('{"DCGM Diagnostic": 3}', "not_judged"), ('{"x', "not_judged"),
    ('{"DCGM Diagnostic": {"test_categories": {"a": 1}}}', "not_judged"),
])
def test_the_verdict(text: str, verdict: str) -> None:
    diagnosis = judge(text, GPU)
    assert diagnosis.verdict == verdict
    assert diagnosis.message


def test_what_is_wrong_is_said() -> None:
    assert "link is x8" in judge(three({"gpu_ids": str(GPU), "status": "FAIL",
                                        "warnings": ["link is x8", None]}), GPU).message
    assert "Persistence mode" in judge(four(of(GPU, "Pass"), of(GPU, "Fail", PERSISTENCE)),
                                       GPU).message
