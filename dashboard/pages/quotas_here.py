"""The quotas of a node, or of one GPU: whether they are in force there, and how near to them the
holders there are. Pure."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from .limit_panels import note, pill
from .quota_cards import LIMITS, use_bar, use_words
from .words import plural

Item = dict[str, Any]
MOST_NAMED = 5


def quotas_here(items: Sequence[Item], what: str) -> list[Component]:
    """Return the panel. `what`: node or GPU."""
    if not items:
        return [note([f"No quota applies to this {what}. ",
                      make("a", "Quotas", href="/quotas")])]
    limiting = [item for item in items if item["holders"] or not item["is_in_force"]]
    unused = [item for item in items if item not in limiting]
    names = ", ".join(item["quota"] for item in unused[:MOST_NAMED])
    more = " …" if len(unused) > MOST_NAMED else ""
    rest = [note(f"{'And ' if limiting else ''}{plural(len(unused), 'quota')} in force without "
                 f"usage here: {names}{more}.")] if unused else []
    return [*(_quota(item, what) for item in limiting), *rest]


def _quota(item: Item, what: str) -> Component:
    state = [] if item["is_in_force"] else [
        pill("not in force" if item["is_applied"] else "not applied", "stale")]
    return make("div.quota-here", [
        make("p", [make("a", item["quota"], href=f"/quotas#{quote(item['quota'], safe='')}"), " ",
                   make("span.pill", item["mode"]), *state], title=item["meaning"]),
        *([] if item["is_in_force"] else [note(f"{item['proof']}.")]),
        make("ul", [_holder(holder, what) for holder in item["holders"]])],
        data_key=item["quota"])


def _holder(holder: Item, what: str) -> Component:
    _, words = LIMITS[holder["limit"]]
    here, goes = holder["here"], holder["goes"]
    notes = [*([] if here is None or here == holder["used"] else [
        f"{words(here)} on this {what}"]),
        *([f"{plural(goes, 'job')} here would be ended"] if goes > 0 else [])]
    return make("li", [
        make("span.holder", holder["holder"]),
        make("span.numbers", [use_words(holder), *(
            [make("span.pill.lost.over", "over")] if holder["is_over"] else [])]),
        use_bar(holder), *([make("span.next", f"{'; '.join(notes)}.")] if notes else [])],
        data_key=f"{holder['limit']} {holder['holder']}")
