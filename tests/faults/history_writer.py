"""The history of a hub at many times its speed, to be killed: it takes seconds into the head log,
prints which are acked, and seals, merges and rotates as it goes.

    python -m tests.faults.history_writer FOLDER SEED FIRST_SECOND
"""

import sys
from pathlib import Path

from dashboard.history.columns.rows import HistoryMessage
from dashboard.history.ingest.headlog import CARRIED, HeadLog, HeadLogEntry
from dashboard.history.reads.embedded import EmbeddedHistory
from gpudeck.contract.wire import decode_from_agent, encode
from tests.unit.histories import Source

REPOSITORY = Path(__file__).resolve().parents[2]
SIZE = (2, 1)  # Nodes, and GPUs of each
ROTATE_EVERY_S = 60
TEND_EVERY_S = 20
AHEAD_S = 4_000


def entry(message: HistoryMessage, seq: int, second: int) -> HeadLogEntry:
    return HeadLogEntry(message.node_id, message.stream, seq, message.received_at,
                        encode(message.message), second)


def replay(folder: Path, history: EmbeddedHistory) -> HeadLog:
    """Replay the head log, as the recorder does at its start."""
    log = HeadLog(folder / "headlog")
    for number, entries in log.segments():
        for record in entries:
            message = decode_from_agent(record.payload)
            history.append([HistoryMessage(record.node_id, record.stream, record.received_at,
                                           message, record.second)],  # type: ignore[arg-type]
                           number)
    log.open()
    return log


def main(folder: Path, seed: int, first: int) -> None:
    source = Source(seed, *SIZE)
    history = EmbeddedHistory(folder / "history")
    history.open()
    log = replay(folder, history)
    greetings = source.greetings()
    log.append([entry(message, 0, CARRIED) for message in greetings])
    history.append(greetings, log.number)
    for t in range(first, first + AHEAD_S):
        messages = numbered(source, t)
        log.append([entry(message, 1, message.second) for message in messages])
        history.append(messages, log.number)
        print(t, flush=True)
        if t % ROTATE_EVERY_S == 0:
            log.rotate([entry(message, 0, CARRIED) for message in greetings])
            log.drop_old(history.store.first_segment())
        if t % TEND_EVERY_S == 0:
            history.store.maintain(t)


def numbered(source: Source, t: int) -> list[HistoryMessage]:
    """Messages of a second, the same for the same seed and second in every process: a restarted
    writer goes on with what the test compares with."""
    source.random.seed(f"{source.seed} {t}")
    source.seqs = dict.fromkeys(source.uuids, t * 10)
    return source.second(t)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
