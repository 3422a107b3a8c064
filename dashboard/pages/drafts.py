"""Drafts: what is in a form that the hub checks while somebody writes it."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

MOST_LETTERS = 100_000  # of a draft; the browser sends none that is longer
NEW = "+"  # instead of the name of what is edited
REMOVED_MEANWHILE = ("It was removed meanwhile and cannot be saved. Copy from here what you still "
                     "need.")
D = TypeVar("D", bound="FormDraft")


class FormDraft(Struct):
    """A draft, as assets/reading/dialogs.mjs sends it. `of`: what is edited, or NEW; `values`: what
    is in the form, by the names of its controls; `touched`: names of those that somebody came to;
    `is_tried`: whether it was to be saved already; `do`: what a button asks for."""

    of: str = ""
    values: dict[str, list[str]] = {}
    touched: list[str] = []
    is_tried: bool = False
    do: str = ""

    @property
    def is_new(self) -> bool:
        return self.of == NEW

    def text(self, name: str) -> str:
        return self.values.get(name, [""])[0].strip()

    def wrong(self, problems: Mapping[str, str], parts: Mapping[str, Iterable[str]] = {}
              ) -> dict[str, str]:
        """Return what is wrong, by field. A field that nobody has come to yet is not called wrong.
        `parts`: names of controls by the field that they make up."""
        is_shown = not self.is_new or self.is_tried
        return {field: message for field, message in problems.items()
                if is_shown or not {field, *parts.get(field, ())}.isdisjoint(self.touched)}


def read_draft(kind: type[D], text: str, begin: D) -> D:
    """Return the draft that the browser sends, if it is of the same thing as `begin`."""
    if text == "":
        return begin
    draft = msgspec.json.decode(text, type=kind)
    return draft if draft.of == begin.of else begin


def removed_draft(begin: D, text: str) -> str:
    """Return the draft of what somebody else has removed, which asks for nothing more; "": nothing
    was typed that could be lost."""
    draft = read_draft(type(begin), text, begin)
    draft.do = ""
    return encode_draft(draft) if draft.values or draft.touched else ""


def encode_draft(draft: FormDraft) -> str:
    return msgspec.json.encode(draft).decode()


def number(words: str) -> float | int | str:
    """Return the number; a text that is none is for the hub to refuse."""
    try:
        value = float(words)
    except ValueError:
        return words
    return int(value) if value.is_integer() else value


def number_text(value: float) -> str:
    """Write a number with all its digits, so that a form keeps it: the way back from `number`."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def messages_by_field(problems: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the messages of problems by their fields, without the numbers of parts: `where[1]` is
    of `where`."""
    return {problem["field"].partition("[")[0]: problem["message"] for problem in problems}
