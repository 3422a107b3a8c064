"""Acknowledgements with two watermarks between peers of which one knows a single one."""

from pathlib import Path
from typing import Annotated

import pytest
from msgspec import UNSET, Meta, Struct, msgpack

from agent.link.outbox import Outbox
from agent.link.outbox_file import OutboxFile
from gpudeck.contract.wire import MAX_SPANS, Ack, Event, Span, Welcome, decode_from_hub, encode
from tests.contract.test_golden_messages import golden, read


class SpanOfBefore(Struct, frozen=True, array_like=True):
    first: int
    last: int


class AckOfBefore(Struct, frozen=True, tag="ack"):
    """Ack as the first version has it."""

    seq: int
    spans: Annotated[tuple[SpanOfBefore, ...], Meta(max_length=MAX_SPANS)] = ()


def test_an_agent_of_before_reads_what_is_stored() -> None:
    ack = msgpack.decode(encode(Ack(7, (Span(9, 12),), (Span(1, 3),))), type=AckOfBefore)
    assert ack == AckOfBefore(7, (SpanOfBefore(9, 12),))


@pytest.mark.parametrize(("name", "kind"), [("ack", Ack), ("ack_with_a_gap", Ack),
                                            ("welcome", Welcome),
                                            ("welcome_after_an_outage", Welcome)])
def test_a_hub_of_before_and_one_without_an_archive_say_nothing_of_it(
        name: str, kind: type) -> None:
    message = decode_from_hub(read(golden(name)))
    assert isinstance(message, kind)
    assert isinstance(message, Ack | Welcome)
    assert message.archived is UNSET
    assert b"archived" not in encode(message)


def test_an_agent_drops_at_stored_what_a_hub_of_before_acks(tmp_path: Path) -> None:
    outbox = Outbox(OutboxFile(tmp_path / "j.db"))
    outbox.append([Event(seq, 0.0, "test") for seq in range(1, 10)], 0.0)
    outbox.mark_sent(1, 9)
    message = decode_from_hub(read(golden("ack")))
    assert isinstance(message, Ack)
    outbox.ack(message.seq, message.spans, message.archived)
    assert outbox.copies(0.0, 0.0) is UNSET
    outbox.welcomed(0)  # another hub that has none of it does not get it again
    assert [seq for seq, _ in outbox.entries(0, 9, 100)] == [8, 9]
