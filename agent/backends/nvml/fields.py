"""Bulk readings of NVML: field values, many readings of one GPU in one call, each with its own
error code and type; and its ring buffers, what the driver itself sampled between two readings, so
that bursts count."""

import ctypes
import struct
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pynvml

from gpudeck.measures.metrics import UNKNOWN, UNSUPPORTED, Absence

from .ask import NvmlDevice

Field = tuple[int, int]  # its number, and its scope: a link, or EVERY_LINK
EVERY_LINK = 0xFFFFFFFF

# nvml.h, nvmlValueType_t: how 8 bytes hold the number, and in how many bits.
NUMBERS: dict[int, tuple[struct.Struct, int]] = {
    0: (struct.Struct("=d"), 64), 1: (struct.Struct("=I4x"), 32), 2: (struct.Struct("=Q"), 64),
    3: (struct.Struct("=Q"), 64), 4: (struct.Struct("=q"), 64), 5: (struct.Struct("=i4x"), 32),
    6: (struct.Struct("=H6x"), 16),
}
# nvml.h, nvmlFieldValue_t: id, scope, time, latency, type, verdict, number. Unpacked as a whole:
# each look at an attribute of pynvml's costs 0.5 us, and there are a hundred in a reading.
_FIELD_VALUE = struct.Struct("=IIqqII8s")
if _FIELD_VALUE.size != ctypes.sizeof(pynvml.c_nvmlFieldValue_t):
    raise ImportError("pynvml's field values are not nvml.h's")


class NvmlFieldValues:
    """Answers of one call."""

    def __init__(self, answers: "dict[Field, tuple[Any, int] | Absence]") -> None:
        self._answers = answers

    def number(self, field: Field) -> Any:
        """Return the number, or an Absence."""
        answer = self._answers.get(field, UNSUPPORTED)
        return answer if type(answer) is Absence else answer[0]

    def counter(self, field: Field) -> "tuple[int, int] | Absence":
        """Return a counter's state and its bits, or an Absence."""
        answer = self._answers.get(field, UNSUPPORTED)
        return answer if type(answer) is Absence else (int(answer[0]), answer[1])


def read_fields(asker: NvmlDevice, requested: Iterable[Field]) -> NvmlFieldValues:
    answers: dict[Field, tuple[Any, int] | Absence] = {}
    to_ask = []
    for field in requested:
        refusal = asker.standing_refusal(field)
        if refusal is None:
            to_ask.append(field)
        else:
            answers[field] = refusal
    if not to_ask:
        return NvmlFieldValues(answers)
    fields = tuple(to_ask)
    # Refused as a whole means that not one was to be had: by this question, not for all others.
    raw = asker.ask(raw_values, fields, question=("fields", fields))
    if type(raw) is Absence:
        return NvmlFieldValues(answers | dict.fromkeys(fields, raw))
    # In the order asked. The call succeeds if any field did: each has a verdict of its own.
    for field, (_, _, _, _, kind, code, number) in zip(
        fields, _FIELD_VALUE.iter_unpack(raw), strict=True
    ):
        answers[field] = _verdict(asker, field, kind, code, number)
    return NvmlFieldValues(answers)


def raw_values(handle: Any, fields: tuple[Field, ...]) -> bytearray:
    """Read the fields as bytes: pynvml's own call fills its array attribute by attribute, which
    costs more than the call."""
    buffer = _empty_request(fields)[:]
    call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
    pynvml._nvmlCheckReturn(
        call(handle, len(fields), (ctypes.c_char * len(buffer)).from_buffer(buffer)))
    return buffer


@lru_cache(maxsize=1_024)
def _empty_request(fields: tuple[Field, ...]) -> bytearray:
    return bytearray().join(_FIELD_VALUE.pack(*field, 0, 0, 0, 0, b"") for field in fields)


def _verdict(
    asker: NvmlDevice, field: Field, kind: int, code: int, number: bytes
) -> "tuple[Any, int] | Absence":
    if code != pynvml.NVML_SUCCESS:
        return asker.refuse(field, code)
    if kind not in NUMBERS:
        return UNKNOWN  # a type of the future: any reading of it would be a guess
    asker.note_answer(field)
    shape, bits = NUMBERS[kind]
    return shape.unpack(number)[0], bits


US = 1_000_000


class NvmlSampleBuffers:
    def __init__(self, asker: NvmlDevice) -> None:
        self._asker = asker
        self._read_to: dict[int, int] = {}  # by kind, in the driver's microseconds since 1970

    def mean_and_peak(self, kind: int, high: float) -> tuple[float, float] | None:
        """Return mean and peak since the last time. None: none are to be had, or none are new."""
        since = self._read_to.get(kind, 0)
        if since > (time.time() + 5) * US:
            since = 0  # the clock was set back: nothing would be new until it has caught up
        answer = self._asker.ask("nvmlDeviceGetSamples", kind, since, question=("samples", kind))
        if type(answer) is Absence or answer[0] not in NUMBERS or not answer[1]:
            return None
        fresh = [(at, value) for at, value in _unpack(*answer) if at > since]
        if not fresh:
            return None
        newest = self._read_to[kind] = max(at for at, _ in fresh)
        # The first time the whole buffer comes, history and all.
        values = [value for at, value in fresh
                  if 0 <= value <= high and (since or at > newest - US)]
        return (sum(values) / len(values), max(values)) if values else None


def _unpack(kind: int, samples: list[Any]) -> Iterator[tuple[int, float]]:
    """Unpack the array below pynvml's list, 16 bytes each: a time, and a number of this kind. By
    its attributes a sample costs ten times as much, and there may be a hundred a second."""
    number = NUMBERS[kind][0].format.removeprefix("=")
    for at, value in struct.iter_unpack(f"=Q{number}", samples[0]._b_base_):
        yield at, float(value)
