"""Parser of the small languages that people write, filters and signals of rules: words, precedence
and positions of mistakes. Pure."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


class ExpressionError(ValueError):
    """Error with a sentence and its position; `at` counts characters from 0."""

    def __init__(self, sentence: str, at: int = 0) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.at = at


@dataclass(frozen=True, slots=True)
class Token:
    """A part of the text. `kind`: the group of the language's pattern that matched it."""

    kind: str
    text: str
    at: int


class ExpressionParser(ABC, Generic[T]):
    """Parser of operators of several levels, each binding tighter than the one before, over terms
    and parentheses. A subclass defines its operators and terms."""

    PATTERN: ClassVar[re.Pattern[str]]
    LEVELS: ClassVar[tuple[str, ...]]  # the operators of each level, a character each
    MAX_DEPTH: ClassVar[int]
    ERROR: ClassVar[type[ExpressionError]]

    def __init__(self, text: str) -> None:
        self.end = len(text)
        self.tokens = list(self._read(text))
        self._next = 0

    def _read(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        at = 0
        while at < len(text.rstrip()):
            match = self.PATTERN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self.ERROR(f"what is {text[at]!r}?", at)
            kind = match.lastgroup or ""
            tokens.append(self.token(kind, match.group(kind), match.start(kind)))
            at = match.end()
        return tokens

    # -- the language

    def token(self, kind: str, text: str, at: int) -> Token:
        return Token(kind, text, at)

    @abstractmethod
    def term(self, token: Token, depth: int) -> T:
        """Parse the term that begins with this token, which is not consumed yet."""

    @abstractmethod
    def combined(self, mark: str, left: T, right: T, at: int) -> T:
        """Combine two operands. `at`: where the right one begins."""

    @abstractmethod
    def unclosed(self, opened: Token) -> ExpressionError: ...

    @abstractmethod
    def left_over(self, token: Token) -> ExpressionError: ...

    # -- parsing

    def whole(self) -> T:
        expression = self.part(0)
        rest = self.peek()
        if rest is not None:
            raise self.left_over(rest)
        return expression

    def part(self, depth: int, level: int = 0) -> T:
        if level == len(self.LEVELS):
            return self.one(depth)
        expression = self.part(depth, level + 1)
        while (mark := self.operator(level)) is not None:
            at = self.at()
            expression = self.combined(mark, expression, self.part(depth, level + 1), at)
        return expression

    def operator(self, level: int) -> str | None:
        return self.take(self.LEVELS[level])

    def one(self, depth: int) -> T:
        token = self.peek()
        if token is None:
            raise self.ERROR("something is missing at the end", self.end)
        if depth >= self.MAX_DEPTH:
            raise self.ERROR(f"more than {self.MAX_DEPTH} levels deep", token.at)
        if self.take("(") is None:
            return self.term(token, depth)
        expression = self.part(depth + 1)
        if self.take(")") is None:
            raise self.unclosed(token)
        return expression

    def peek(self) -> Token | None:
        return self.tokens[self._next] if self._next < len(self.tokens) else None

    def skip(self) -> None:
        self._next += 1

    def take(self, marks: str) -> str | None:
        """Consume and return the next mark, if it is one of these."""
        token = self.peek()
        if token is None or token.kind != "mark" or token.text not in marks:
            return None
        self._next += 1
        return token.text

    def at(self) -> int:
        token = self.peek()
        return self.end if token is None else token.at
