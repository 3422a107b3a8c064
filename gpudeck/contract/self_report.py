"""Parts of a Beat: what the agent reports of itself."""

from msgspec import Struct

from gpudeck.contract.message_limits import Amount, Number, Seconds


class Cost(Struct, frozen=True):
    """Resources that the agent takes from its machine, agent and reader together."""

    cpu_pct: Amount | None  # of one core, since the last Beat
    memory_bytes: Amount | None  # PSS; a page shared with others counts in part
    read_s: Amount | None  # that the last read of the driver took
    outbox_bytes: Amount | None


class JournalCopies(Struct, frozen=True, array_like=True):
    """Copies in the agent's journal of messages that the hub has stored and not yet archived."""

    first: Number  # the oldest message in the journal, copy or not: none before it is there
    since: Seconds | None  # when the oldest came about, by the agent's clock; None: there are none
    room_s: Amount | None  # time that the journal holds, at the present rate; None: not known
