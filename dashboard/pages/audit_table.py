"""The Audit log page: entries as rows, their details, and the words about all of them, from data
alone."""

from collections.abc import Iterable, Sequence, Set
from typing import Any
from urllib.parse import urlencode

import msgspec
from dash.development.base_component import Component

from gpudeck.audit.words import SENTENCES
from gpudeck.markup import make

from .figures import OUTCOMES, Item, outcome_group
from .words import NONE, amount, clock, moment, plural, sentence, when

HEADS = ("When", "Who", "What", "Where", "Outcome")
# Kinds of entries to choose from, next to those that occur.
KINDS = frozenset(kind for kind, _ in SENTENCES) | {
    "advice", "anchor", "audit", "brake", "command", "heads", "hold", "keep", "ladder", "plan",
    "quota", "sign_in", "team"}
TONES = {"done": "ok", "in progress": "", "refused": "stale", "failed": "lost"}
LET_IN = "let in"  # as the log has it
OUTCOME_WORDS = ("done", LET_IN, *(word for words in OUTCOMES.values() for word in words))
WORDS = {LET_IN: "signed in", "notice": "notification"}
NONE_YET = "No entries yet. The first action, sign-in or change appears here."
NO_MATCH = "No entry matches."
HEAD_CHARS = 16


def words_of(text: str) -> str:
    """Return a word of the log as people say it."""
    return WORDS.get(text, text.replace("_", " "))


def options(names: Iterable[str], every: str) -> list[Component]:
    """Return the options of a choice; `every`: the words for no choice."""
    return [make("option", every, value="")] + [
        make("option", words_of(name), value=name) for name in names]


def kind_options(entries: Sequence[Item], kind: str) -> list[Component]:
    names = KINDS | {entry["kind"] for entry in entries} | {kind}
    return options(sorted(names - {""}, key=words_of), "anything")


def outcome_options(entries: Sequence[Item], outcome: str) -> list[Component]:
    rest = sorted({entry["outcome"] for entry in entries if entry["outcome"]} | {outcome} - {""})
    return options(dict.fromkeys((*OUTCOME_WORDS, *rest)), "any")


def host_options(entries: Sequence[Item]) -> list[Component]:
    return [make("option", value=host) for host in sorted(
        {entry["host"] for entry in entries if entry["host"]})]


def count_words(matching: int, count: int, has_more: bool, is_newest: bool) -> str:
    """Return how many of the `count` entries that were read match."""
    if count == 0:
        return ""
    which = "the newest" if is_newest else "older ones"
    every = plural(count, "entry", "entries") + (
        f", {which}" if has_more or not is_newest else "")
    return every if matching == count else f"{amount(matching)} of {every}"


def newest_steps(entries: Iterable[Item]) -> list[Item]:
    """Return the entries with each command once, as its first one. They come newest first: a
    command that is done would else be listed, and counted, as in progress too."""
    first: dict[str, Item] = {}
    return [entry for entry in entries if entry["command_id"] is None
            or first.setdefault(entry["command_id"], entry) is entry]


def steps_of(command: str | None, entries: Iterable[Item]) -> list[Item]:
    """Return the entries of a command, oldest first."""
    return [] if command is None else sorted(
        (entry for entry in entries if entry["command_id"] == command),
        key=lambda entry: int(entry["seq"]))


def table(entries: Sequence[Item], opened: Set[int], now: float, zone: str,
          every: Sequence[Item] = ()) -> Component:
    """Return the table of the entries. `opened`: numbers of those whose details are shown, with the
    steps of their commands among `every`."""
    heads = [make("th", head, scope="col") for head in HEADS]
    details = make("th", make("span.unseen", "Details"), scope="col")
    rows = []
    for entry in entries:
        rows.append(entry_row(entry, opened, now, zone))
        if entry["seq"] in opened:
            rows.append(details_row(entry, zone, steps_of(entry["command_id"], every)))
    return make("table.audit", [make("thead", make("tr", [*heads, details])), make("tbody", rows)],
                hidden=not entries)


def entry_row(entry: Item, opened: Set[int], now: float, zone: str) -> Component:
    seq, at, outcome = entry["seq"], entry["at"], entry["outcome"]
    pill = NONE if not outcome else make(
        f"span.pill{_looks(TONES[outcome_group(outcome)])}", words_of(outcome))
    return make("tr", [
        make("td", NONE if at is None else when(at, now), data_head="When",
             title=None if at is None else moment(at, zone)),
        make("td", make("strong", entry["actor"] or NONE), data_head="Who"),
        make("td.audit-what", [
            make("span.audit-action", words_of(entry["action"] or entry["kind"])),
            make("span.audit-sentence", entry["sentence"])], data_head="What"),
        make("td", entry["host"] or NONE, data_head="Where"),
        make("td", pill, data_head="Outcome"),
        make("td.row-actions", more_button(seq, opened))], data_key=str(seq), data_seq=str(seq))


def more_button(seq: int, opened: Set[int]) -> Component:
    is_open = seq in opened
    word = "Less" if is_open else "More"
    # What is read aloud begins with what is seen: people who speak to the browser say that.
    return make("button.button.small", word, aria_label=f"{word} about entry {seq}",
                aria_expanded=str(is_open).lower(),
                data_set={"open": sorted(opened ^ {seq})}, data_step="false")


def details_row(entry: Item, zone: str, steps: Sequence[Item] = ()) -> Component:
    at, detail = entry["at"], entry["detail"]
    facts = [("Record", amount(entry["seq"])), ("When", None if at is None else moment(at, zone)),
             ("Kind", words_of(entry["kind"])), ("Node", entry["node"]),
             ("Task", entry["task_id"]), ("Command", entry["command_id"]),
             ("Steps", _steps_words(steps, zone)), ("Hash", entry["hash"]),
             *((words_of(name), _text(value)) for name, value in detail.items())]
    lines = [make("div", [make("dt", label), make("dd", value)])
             for label, value in facts if value]
    link = make("a.button.small", "The task", href=task_address(entry["task_id"])) if (
        entry["task_id"]) else None
    return make("tr.audit-more", make("td", [
        make("dl.facts", lines), *([] if link is None else [link])], colSpan="6"),
        data_key=f"more {entry['seq']}")


def _steps_words(steps: Sequence[Item], zone: str) -> str | None:
    """Return the steps of a command with their times. One alone is its entry."""
    if len(steps) < 2:
        return None
    last = steps[-1]["at"] or 0.0
    return ", ".join(
        words_of(step["outcome"] or step["action"] or step["kind"])
        + ("" if step["at"] is None else f" {clock(step['at'], last, zone)}") for step in steps)


def task_address(task_id: str) -> str:
    return f"/tasks?{urlencode({'task': task_id})}"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _looks(tone: str) -> str:
    return f".{tone}" if tone else ""


def verdict(answer: Item) -> Component:
    """Return what a verification of the chain and of the nodes' logs found."""
    broken = [node for node in answer["nodes"] if node["broken"]]
    look = "bad" if answer["broken"] or broken else "good"
    return make(f"div#audit-verdict.verdict.{look}", _verdict_words(answer, broken))


def no_verdict(why: str) -> Component:
    return make("div#audit-verdict.verdict.bad", f"Not verified: {sentence(why)}")


def _verdict_words(answer: Item, broken: Sequence[Item]) -> str:
    where, nodes = answer["broken"], answer["nodes"]
    if where:
        return (f"The audit log is broken at {amount(where['seq'])}: {sentence(where['sentence'])} "
                "Compare with a copy stored elsewhere: gpudeck audit verify.")
    if broken:
        whys = "; ".join(f"{node['host'] or node['node']} ({node['broken']})" for node in broken)
        return ("The hub's log is intact, but that of "
                f"{plural(len(broken), 'node')} is not: {whys}.")
    head = answer["head"][:HEAD_CHARS] or "not available yet"
    also = f" The heads of {plural(len(nodes), 'node')} match it." if nodes else ""
    return (f"All {plural(answer['records'], 'entry', 'entries')} are intact; the newest is "
            f"{head}….{also}")
