"""Messages that come at once say what they say one by one, whatever stands between them."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from dashboard.history.columns.host_minutes import host_columns, join_hosts
from dashboard.history.columns.memory import in_order
from dashboard.history.columns.rows import HistoryMessage, slow_rows
from dashboard.history.columns.task_minutes import held_in
from dashboard.history.ingest.headlog import CARRIED
from dashboard.history.ingest.messages import HistoryIngester
from gpudeck.contract.wire import Frame, GpuFacts, Inventory
from tests.unit.histories import START, Source

SECONDS = 90


def story(source: Source) -> list[HistoryMessage]:
    """Return seconds of Nodes with what is seldom among them: a new listing, Frames of a listing
    that never came, a new connection, a second sent twice, what a segment of the log carries."""
    lots, messages, generation = source.random, source.greetings(), dict.fromkeys(source.uuids, 1)
    for t in range(START, START + SECONDS):
        for entry in source.second(t):
            node, message = entry.node_id, entry.message
            if isinstance(message, Frame):
                entry = replace(entry, message=replace(
                    message, generation=99 if lots.random() < 0.05 else generation[node]))
            messages.append(entry)
            chance = lots.random()
            if chance < 0.03:
                messages.append(entry)
            elif chance < 0.06:
                generation[node] += 1
                facts = tuple(GpuFacts(uuid, at, "H100") for at, uuid in enumerate(
                    lots.sample(source.uuids[node], 1 if lots.random() < 0.2 else 2)))
                messages.append(HistoryMessage(node, "s", t, Inventory(generation[node], facts)))
            elif chance < 0.09:
                messages.append(source.greetings()[2 * [*source.uuids].index(node)])
            elif chance < 0.12:
                messages.append(replace(entry, second=CARRIED))
            elif chance < 0.15:
                messages.append(replace(entry, second=0))
            elif chance < 0.18:
                messages.append(replace(entry, is_backfill=True))
    return messages


def feed_of(batches: Iterable[Sequence[HistoryMessage]]) -> HistoryIngester:
    feed = HistoryIngester(lambda _: None, lambda _: set(), None, None)
    for batch in batches:
        feed.take(batch, 1)
    return feed


def cuts(messages: Sequence[HistoryMessage], lots: random.Random
         ) -> Iterable[Sequence[HistoryMessage]]:
    ends = sorted(lots.sample(range(len(messages)), 5))
    return [messages[first:last] for first, last in zip([0, *ends], [*ends, None], strict=True)]


def contents(feed: HistoryIngester) -> dict[str, Any]:
    names = feed.names
    everything = feed.slots_of(None, None)
    rows = in_order(feed.head.rows(everything, 0, 2**40))
    extras = feed.extras()
    slow = slow_rows(part for aside in extras for part in aside.slow)
    by_time = np.lexsort((slow.slot, slow.t))
    feed.tally.add_up()
    task_rows = held_in(feed.tally.blocks.values())
    return {
        "slots": [*zip(names.gpus, names.nodes, strict=True)],
        "rows": [np.asarray(array).tolist() for array in (
            rows.slot, rows.t, rows.state, rows.missing, *rows.units.values())],
        "slow": [slow.slot[by_time].tolist(), slow.t[by_time].tolist(),
                 slow.numbers[by_time].tolist()],
        "tasks": [task_rows.slot.tolist(), task_rows.t.tolist(),
                  [task_rows.ids[at] for at in task_rows.lane.tolist()],
                  *(np.nan_to_num(array, nan=-1).tolist() for array in task_rows.numbers.values())],
        "events": [{key: t for key, (t, _) in aside.events.items()} for aside in extras],
        "hosts": host_columns(join_hosts(aside.hosts for aside in extras), names),
        "counts": (feed.counts.frames, feed.counts.unreadable, feed.head.doubled),
    }


def test_a_batch_says_what_its_messages_say_one_by_one() -> None:
    for _ in range(4):
        source = Source(random.randrange(10**9), nodes=3)
        messages = story(source)
        one_by_one = contents(feed_of([message] for message in messages))
        frames, unreadable, doubled = one_by_one["counts"]
        assert frames > 30
        assert unreadable > 0
        assert doubled > 0
        for batches in ([messages], cuts(messages, source.random)):
            assert repr(contents(feed_of(batches))) == repr(one_by_one), source.seed
