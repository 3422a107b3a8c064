"""Sizes of memory as people write them. Pure."""

import re

GB = 10**9
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          **_BINARY, **{f"{unit}iB": size for unit, size in _BINARY.items()}}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def parse_size(text: str) -> int:
    """Parse a size into bytes. Units are binary unless written as decimal: boards of 80 GB have
    some 80 GiB. Raises ValueError with a sentence."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in UNITS:
        raise ValueError(f"{text[:40]!r} is not a size; write for example 40GiB, 40G or 512MiB")
    return int(float(match[1]) * UNITS[match[2]])


def sold_bytes(size: int) -> int:
    """Return the least that the driver reports for boards that are sold with so many GiB: 80 GB are
    79.6."""
    return size * GB // 2**30
