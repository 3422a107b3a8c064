"""Answers to what several open pages ask again and again: made once for all who may see the same.
Pure."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import msgspec

MOST_AGE_S = 0.5
# Pages that ask for the same at other moments cost the hub's loop an eleventh of it at most. Where
# an answer costs little, it is next to never an old one.
AGE_PER_COST = 10.0
MOST_ANSWERS = 16  # of a megabyte at most


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    body: msgspec.Raw
    until: float


class SharedAnswers:
    """`clock`: seconds, of which only differences count."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: dict[Hashable, SharedAnswer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def encoded(self, key: Hashable, make: Callable[[], msgspec.Struct]) -> msgspec.Raw:
        """Return the answer as JSON. `key`: all that decides what is in it, the rights of who asks
        included; it has no default, so that nobody reads what was made for somebody else."""
        began = self._clock()
        self._answers = {other: answer for other, answer in self._answers.items()
                         if began < answer.until}
        answer = self._answers.get(key)
        if answer is None:
            body = msgspec.Raw(msgspec.json.encode(make()))
            end = self._clock()
            answer = SharedAnswer(body, end + min(MOST_AGE_S, AGE_PER_COST * (end - began)))
            if len(self._answers) < MOST_ANSWERS:
                self._answers[key] = answer
        return answer.body
