"""Sizes of memory as people write them for boards. Pure."""

import re

from gpudeck.quota import parse_size

GB = 10**9
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(?:i?B)?\s*")


def parse_board_size(text: str) -> int:
    """In GiB: 40G, 40GB and 40GiB are the same. Raises ValueError with a sentence."""
    found = _SIZE.fullmatch(text)
    return parse_size(text if found is None else f"{found[1]}{found[2]}iB")


def sold_bytes(size: int) -> int:
    """The least that the driver says of boards that are sold with so many GiB: 80 GB are 79.6."""
    return size * GB // 2**30
