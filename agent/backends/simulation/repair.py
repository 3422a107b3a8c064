"""A simulated board is reset and diagnosed at once, and is well."""

from gpudeck.contract.wire import GpuFacts

from ..repair import DiagnosisAnswer, ResetAnswer


def reset_trouble(facts: GpuFacts) -> str:
    return ""


def diagnosis_trouble() -> str:
    return ""


def holders(facts: GpuFacts) -> tuple[str, ...] | None:
    return ()


def reset(facts: GpuFacts) -> ResetAnswer:
    return ResetAnswer("reset (simulated)", False)


def diagnose(facts: GpuFacts, level: int) -> DiagnosisAnswer:
    return DiagnosisAnswer("passed", "simulated, nothing was measured")
