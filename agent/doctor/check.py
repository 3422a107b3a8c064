"""What `gpudeck doctor` says of one thing. Pure."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warning", "problem", "not checked"]
# The worst of several: a problem before a warning, and what was not checked is no verdict.
_WORST: tuple[Verdict, ...] = ("problem", "warning", "ok", "not checked")


class DoctorCheck(Struct, frozen=True):
    key: str  # stays the same over versions
    title: str
    verdict: Verdict
    says: str
    remedy: str = ""  # what to do; "": nothing


def worst(checks: "list[DoctorCheck]") -> Verdict:
    there = {check.verdict for check in checks}
    return next((verdict for verdict in _WORST if verdict in there), "not checked")
