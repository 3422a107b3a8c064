"""Field values: many readings of one Gpu in one call, each with a verdict and a type of its own."""

from collections.abc import Iterable
from typing import Any

import pynvml

from gpudeck.metrics import Absence

from .nvml_ask import Asker

Field = tuple[int, int]  # its number, and its scope: a link, or EVERY_LINK
EVERY_LINK = 0xFFFFFFFF

# nvml.h, nvmlValueType_t: where the number is, and in how many bits.
MEMBERS: dict[int, tuple[str, int]] = {
    0: ("dVal", 64), 1: ("uiVal", 32), 2: ("ulVal", 64), 3: ("ullVal", 64), 4: ("sllVal", 64),
    5: ("siVal", 32), 6: ("usVal", 16),
}


class Answers:
    """What one call said."""

    def __init__(self) -> None:
        self._found: dict[Field, tuple[Any, int] | Absence] = {}

    def put(self, field: Field, answer: "tuple[Any, int] | Absence") -> None:
        self._found[field] = answer

    def number(self, field: Field) -> Any:
        """The number, or an Absence."""
        answer = self._found.get(field, Absence.UNSUPPORTED)
        return answer if isinstance(answer, Absence) else answer[0]

    def counted(self, field: Field) -> "tuple[int, int] | Absence":
        """Of a counter: its state and its bits."""
        answer = self._found.get(field, Absence.UNSUPPORTED)
        return answer if isinstance(answer, Absence) else (int(answer[0]), answer[1])


def read_fields(asker: Asker, wanted: Iterable[Field]) -> Answers:
    answers = Answers()
    fields = []
    for field in wanted:
        refused = asker.refused(field)
        if refused is None:
            fields.append(field)
        else:
            answers.put(field, refused)
    if not fields:
        return answers
    # Refused as a whole means that not one was to be had: by this question, not for all others.
    found = asker.ask("nvmlDeviceGetFieldValues", fields, question=("fields", *fields))
    if isinstance(found, Absence):
        for field in fields:
            answers.put(field, found)
        return answers
    # In the order asked. The call succeeds if any field did: each has a verdict of its own.
    for field, each in zip(fields, found, strict=True):
        answers.put(field, _verdict(asker, field, each))
    return answers


def _verdict(asker: Asker, field: Field, said: Any) -> "tuple[Any, int] | Absence":
    if said.nvmlReturn != pynvml.NVML_SUCCESS:
        return asker.refuse(field, said.nvmlReturn)
    if said.valueType not in MEMBERS:
        return Absence.UNKNOWN  # a type of the future: any member would be a guess
    asker.answered(field)
    member, bits = MEMBERS[said.valueType]
    return getattr(said.value, member), bits
