"""Spans of sequence numbers, as messages carry them."""

from typing import Annotated

from msgspec import Meta, Struct, UnsetType

MAX_SPANS = 64


class Span(Struct, frozen=True, array_like=True, gc=False):
    """Range of seqs, both ends included."""

    first: Annotated[int, Meta(ge=1, le=2**53)]
    last: Annotated[int, Meta(ge=1, le=2**53)]


Spans = Annotated[tuple[Span, ...], Meta(max_length=MAX_SPANS)]
ArchivedSpans = Spans | UnsetType
