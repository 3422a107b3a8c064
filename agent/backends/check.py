"""Verdicts of `gpudeck doctor`, and what a backend contributes to its report."""

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol, cast

from msgspec import Struct

from . import BACKENDS, module_of

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


class DoctorModule(Protocol):
    """Checks of one vendor's driver for `gpudeck doctor`."""

    PACKAGES: tuple[str, ...]  # of Python
    FILES: tuple[str, ...]  # of the system, for a bundle
    ENVIRONMENT: tuple[str, ...]  # how the names of its variables begin

    def checks(self, released: str) -> Iterator[DoctorCheck]:
        """`released`: why the driver must not be opened now; "": it may be."""

    def package_conflict(self, versions: Mapping[str, str]) -> tuple[str, str] | None:
        """Return what is wrong with the installed packages, and the remedy."""


def doctor_modules() -> list[DoctorModule]:
    return [cast(DoctorModule, module_of(backend.doctor))
            for backend in BACKENDS.values() if backend.doctor]
