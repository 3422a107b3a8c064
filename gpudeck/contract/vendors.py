"""Vendors of boards, by the form of a GPU's UUID. Pure."""

import re

NVIDIA, AMD, INTEL = "NVIDIA", "AMD", "Intel"
PCI = {NVIDIA: "0x10de", AMD: "0x1002", INTEL: "0x8086"}  # as the kernel writes them
NO_SUSPENSION = "tasks on boards of this kind cannot be suspended"  # of others than NVIDIA's
# ROCm writes a chip's own number with 16 digits; NVIDIA's UUIDs have hyphens.
_FORMS = {AMD: re.compile(r"GPU-[0-9a-f]{16}|AMD-.+"), INTEL: re.compile(r"INTEL-.+"),
          NVIDIA: re.compile(r"(GPU|MIG)-.+")}


def is_nvidia(uuid: str) -> bool:
    """Return whether CUDA and MPS count a GPU: a form that is not known may be one of theirs."""
    return vendor_of(uuid) in ("", NVIDIA)


def vendor_of(uuid: str) -> str:
    """Return the vendor of a GPU; "": its UUID has no form that is known."""
    return next((vendor for vendor, form in _FORMS.items() if form.fullmatch(uuid)), "")
