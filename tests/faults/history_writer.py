"""A hub's way with history at many times its speed, to be killed: takes seconds into the head log,
says which are acked, and seals, merges and rotates as it goes.

    python -m tests.faults.history_writer FOLDER SEED FIRST_SECOND
"""

import sys
from pathlib import Path

from dashboard.history.embedded import EmbeddedHistory
from dashboard.history.headlog import CARRIED, HeadLog, HeadLogEntry
from dashboard.history.rows import HistoryMessage
from gpudeck.wire import decode_from_agent, encode
from tests.unit.histories import Source

REPOSITORY = Path(__file__).resolve().parents[2]
SIZE = (2, 1)  # Nodes, and GPUs of each
ROTATE_EVERY_S = 60
TEND_EVERY_S = 20
AHEAD_S = 4_000


def entry(one: HistoryMessage, seq: int, second: int) -> HeadLogEntry:
    return HeadLogEntry(one.node_id, one.stream, seq, one.received_at, encode(one.message), second)


def replayed(folder: Path, history: EmbeddedHistory) -> HeadLog:
    """As the recorder does at its start."""
    log = HeadLog(folder / "headlog")
    for number, entries in log.segments():
        for found in entries:
            message = decode_from_agent(found.payload)
            history.append([HistoryMessage(found.node_id, found.stream, found.received_at,
                                           message, found.second)],  # type: ignore[arg-type]
                           number)
    log.open()
    return log


def main(folder: Path, seed: int, first: int) -> None:
    source = Source(seed, *SIZE)
    history = EmbeddedHistory(folder / "history")
    history.open()
    log = replayed(folder, history)
    greetings = source.greetings()
    log.append([entry(one, 0, CARRIED) for one in greetings])
    history.append(greetings, log.number)
    for t in range(first, first + AHEAD_S):
        said = numbered(source, t)
        log.append([entry(one, 1, one.second) for one in said])
        history.append(said, log.number)
        print(t, flush=True)
        if t % ROTATE_EVERY_S == 0:
            log.rotate([entry(one, 0, CARRIED) for one in greetings])
            log.drop_old(history.store.first_segment())
        if t % TEND_EVERY_S == 0:
            history.store.maintain(t)


def numbered(source: Source, t: int) -> list[HistoryMessage]:
    """The same for the same seed and second, whoever asks: what a restarted writer goes on with is
    what the test compares with."""
    source.random.seed(f"{source.seed} {t}")
    source.seqs = dict.fromkeys(source.uuids, t * 10)
    return source.second(t)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
