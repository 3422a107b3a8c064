"""Sizes of memory as people write them for boards. Pure."""

import re

from gpudeck.quota import parse_size

GB = 10**9
_SHORT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])\s*")


def parse_board_size(text: str) -> int:
    """40G too: binary, as boards are sold. Raises ValueError with a sentence."""
    short = _SHORT.fullmatch(text)
    return parse_size(text if short is None else f"{short[1]}{short[2]}iB")


def sold_bytes(size: int) -> int:
    """The least that the driver says of boards that are sold with so many GiB: 80 GB are 79.6."""
    return size * GB // 2**30
