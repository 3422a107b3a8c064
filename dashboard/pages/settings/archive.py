"""Archive of history in Settings: whether files reach it, and how far it is behind."""

from collections.abc import Iterator

from dash.development.base_component import Component

from gpudeck.markup import make
from gpudeck.words.archive import archive_words

from ..item_lists import Item, ViewContext
from ..words import bytes_words, sentence

TONES = {"ok": "ok", "warning": "stale", "problem": "lost"}


def archive_parts(archive: Item, context: ViewContext) -> list[Component]:
    return list(_lines(archive, context))


def archive_size(archive: Item) -> Component:
    return make("span.about", "" if archive["state"] == "none" else bytes_words(archive["bytes"]))


def _lines(archive: Item, context: ViewContext) -> Iterator[Component]:
    for word in archive_words(archive, context.now):
        remedy = f" {sentence(word.remedy)}" if word.remedy else ""
        yield make("p", [make(f"span.pill.{TONES[word.verdict]}", word.verdict),
                         f" {sentence(word.says)}{remedy}"])
