"""Numbers as they travel: packed arrays. Pure."""

import sys
from array import array


def pack(values: "list[float] | array[float]") -> bytes:
    """Little-endian float64, whatever the machine."""
    return _swapped(array("d", values)).tobytes()


def unpack(data: bytes) -> "array[float]":
    return _swapped(array("d", data))


def _swapped(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
