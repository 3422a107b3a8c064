"""Our websocket reader against wsproto, the reference, and against what is hostile."""

import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, Ping, TextMessage

from gpudeck.network.websocket import (
    CloseCode,
    Control,
    Message,
    Opcode,
    WebSocketReader,
    WebSocketViolationError,
    accept_key,
    frame,
    unmask,
)


def masked(payload: bytes, opcode: int = 2, final: bool = True, size: int | None = None) -> bytes:
    mask = os.urandom(4)
    length = len(payload) if size is None else size
    head = bytes([(0x80 if final else 0) | opcode])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 65_536:
        head += bytes([0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + length.to_bytes(8, "big")
    return head + mask + unmask(payload, mask)


pieces = st.lists(st.tuples(st.sampled_from("tbp"), st.lists(st.binary(max_size=300), min_size=1,
                                                             max_size=4)), max_size=6)


@given(pieces, st.randoms(use_true_random=False))
def test_reads_what_wsproto_writes_however_it_is_cut(
    messages: list[tuple[str, list[bytes]]], cut: random.Random
) -> None:
    client, data, originals = Connection(ConnectionType.CLIENT), b"", list[Message | Control]()
    for kind, parts in messages:
        if kind == "p":
            data += client.send(Ping(payload=parts[0][:100]))
            originals.append((Opcode.PING, parts[0][:100]))
            continue
        texts = [part.hex() for part in parts]
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            data += client.send(TextMessage(texts[at], message_finished=last) if kind == "t"
                                else BytesMessage(part, message_finished=last))
        originals.append("".join(texts) if kind == "t" else b"".join(parts))
    reader, received = WebSocketReader(100_000), list[Message | Control]()
    while data:
        size = cut.randint(1, len(data))
        received += reader.feed(data[:size])
        data = data[size:]
    assert received == originals
    assert not reader.is_inside
    assert reader.held_bytes == 0


@given(st.binary(max_size=2_000))
def test_no_bytes_raise_anything_but_a_violation(data: bytes) -> None:
    reader = WebSocketReader(500)
    try:
        reader.feed(data)
    except WebSocketViolationError:
        return
    assert reader.held_bytes <= 500 + 14


def test_a_frame_is_refused_by_its_header() -> None:
    with pytest.raises(WebSocketViolationError) as error:
        WebSocketReader(1_000).feed(masked(b"", size=1_001))
    assert error.value.code == CloseCode.TOO_BIG


def test_one_of_several_that_come_together_is_refused_by_its_header() -> None:
    reader = WebSocketReader(1_000)
    assert reader.feed(masked(b"a") + masked(bytes(1_000)) + masked(b"b")) == [
        b"a", bytes(1_000), b"b"]
    with pytest.raises(WebSocketViolationError) as error:
        reader.feed(masked(b"a") + masked(bytes(1_001)) + masked(b"b"))
    assert error.value.code == CloseCode.TOO_BIG


def test_fragments_that_never_finish_are_refused_at_the_cap() -> None:
    reader = WebSocketReader(1_000)
    reader.feed(masked(bytes(600), final=False))
    reader.feed(masked(bytes(300), opcode=0, final=False))
    with pytest.raises(WebSocketViolationError) as error:
        reader.feed(masked(bytes(300), opcode=0, final=False))
    assert error.value.code == CloseCode.TOO_BIG
    assert reader.held_bytes < 1_400


def test_empty_fragments_cost_nothing() -> None:
    reader = WebSocketReader(1_000)
    reader.feed(masked(b"x", final=False))
    for _ in range(10_000):
        reader.feed(masked(b"", opcode=0, final=False))
    assert reader.held_bytes < 200
    assert reader.feed(masked(b"y", opcode=0)) == [b"xy"]


@pytest.mark.parametrize(("data", "code"), [
    (frame(b"unmasked"), CloseCode.PROTOCOL_ERROR),
    (bytes([0xC2, 0x80]) + bytes(4), CloseCode.PROTOCOL_ERROR),  # RSV1: deflate without asking
    (bytes([0x83, 0x80]) + bytes(4), CloseCode.PROTOCOL_ERROR),  # opcode 3
    (masked(b"", opcode=0), CloseCode.PROTOCOL_ERROR),  # a continuation of nothing
    (masked(bytes(126), opcode=9), CloseCode.PROTOCOL_ERROR),  # a long ping
    (masked(b"", opcode=9, final=False), CloseCode.PROTOCOL_ERROR),
    (masked(b"\xff\xfe", opcode=1), CloseCode.INVALID_DATA),
    (masked(b"a", final=False) + masked(b"b"), CloseCode.PROTOCOL_ERROR),
], ids=["unmasked", "rsv", "opcode", "continuation", "long ping", "half ping", "not utf-8",
        "message in a message"])
def test_what_breaks_the_protocol(data: bytes, code: CloseCode) -> None:
    with pytest.raises(WebSocketViolationError) as error:
        WebSocketReader(1_000).feed(data)
    assert error.value.code == code


def test_the_accept_key_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(st.lists(st.binary(max_size=70_000), max_size=4), st.booleans())
def test_a_message_that_comes_alone_is_read_as_in_a_stream(bodies: list[bytes], is_masked: bool
                                                           ) -> None:
    reader, stream = WebSocketReader(66_000, is_masked), WebSocketReader(66_000, is_masked)
    for body in bodies:
        data = masked(body) if is_masked else frame(body)
        if len(body) > 66_000:
            with pytest.raises(WebSocketViolationError, match="more than"):
                reader.feed(data)
            return
        assert reader.feed(data) == [body] == stream.feed(data[:1]) + stream.feed(data[1:])
        assert not reader.is_inside
    with pytest.raises(WebSocketViolationError, match="must be masked"):
        reader.feed(frame(b"x" * 20) if is_masked else masked(b"x" * 20))
