"""Results of `dcgmi diag -j` for one board, in the JSON of DCGM 3, as its source writes it, and of
DCGM 4, as captured in github.com/baldwinSPC/glimmer-burnin (runners/dcgm-diag/testdata). Pure.

Persistence mode that is off is a "Fail" there, of severity 5: a configuration, which condemns no
board. A failure without a severity counts as real. Text may stand before the JSON, and lists may
hold null.
"""

import json
from collections.abc import Iterator
from typing import Any

from ..repair import DiagnosisAnswer

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # 4, 3
CONFIGURATION = 5
WORDS_MOST = 600


def judge(text: str, index: int) -> DiagnosisAnswer:
    root = _root(text)
    if root is None:
        first = text.splitlines()[0][:200] if text else "it said nothing"
        return DiagnosisAnswer("not_judged", f"no result that is understood: {first}")
    failed: list[str] = []
    configured: list[str] = []
    passes = 0
    for name, status, severities, words in _results(root, index):
        if status == "pass":
            passes += 1
        elif status == "fail":
            is_real = not severities or any(severity != CONFIGURATION for severity in severities)
            (failed if is_real else configured).append(f"{name}: {words or 'failed'}")
    if failed:
        return DiagnosisAnswer("failed", "; ".join(failed)[:WORDS_MOST])
    beside = f"; of the configuration: {'; '.join(configured)}" if configured else ""
    if not passes:
        return DiagnosisAnswer("not_judged", f"no test ran on it{beside}"[:WORDS_MOST])
    tests = f"{passes} test{'s' * (passes != 1)} passed"
    return DiagnosisAnswer("passed", f"{tests}{beside}"[:WORDS_MOST])


def _root(text: str) -> dict[str, Any] | None:
    at = text.find("{")
    try:
        document = json.JSONDecoder().raw_decode(text[at:])[0] if at >= 0 else None
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    return next((document[name] for name in ROOTS if isinstance(document.get(name), dict)), None)


def _results(root: dict[str, Any], index: int
             ) -> Iterator[tuple[str, str, tuple[int | None, ...], str]]:
    """Yield test, status, the severities of its warnings (None: it has none), and their words."""
    for category in _list(root.get("test_categories")):
        for test in _list(category.get("tests")):
            for result in _list(test.get("results")):
                if _is_of(result, index):
                    warnings = result.get("warnings") or []
                    yield (str(test.get("name", "a test")), str(result.get("status", "")).lower(),
                           tuple(_severity(warning) for warning in warnings if warning is not None),
                           "; ".join(_words(warning) for warning in warnings
                                     if warning is not None))


def _is_of(result: dict[str, Any], index: int) -> bool:
    """Return whether it is of this board. A result that names none is of the whole machine, and
    counts for each."""
    if "gpu_ids" in result:
        return str(index) in str(result["gpu_ids"]).replace(" ", "").split(",")
    if "entity_id" in result and result.get("entity_group_id", 1) == 1:
        return bool(result["entity_id"] == index)
    return "entity_id" not in result


def _severity(warning: Any) -> int | None:
    severity = warning.get("error_severity") if isinstance(warning, dict) else None
    return severity if isinstance(severity, int) else None


def _words(warning: Any) -> str:
    return str(warning.get("warning", "")) if isinstance(warning, dict) else str(warning)


def _list(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
