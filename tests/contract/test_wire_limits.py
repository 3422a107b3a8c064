"""Limits of the wire: decode raises nothing but WireError, in bounded time and memory."""

import contextlib
import math
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpudeck.contract import wire
from gpudeck.contract.wire import (
    MAX_GPUS,
    MAX_MESSAGE_BYTES,
    MAX_TASKS,
    Frame,
    Tasks,
    Use,
    WireError,
    decode_from_agent,
    decode_from_hub,
    encode,
    pack,
)
from gpudeck.measures.metrics import WIDTH, Absence
from tests.contract.messages import FACTS, FRAME, FROM_AGENT, FROM_HUB, TASK

ENCODED = [encode(message) for message in (*FROM_AGENT.values(), *FROM_HUB.values())]
DECODERS: list[Callable[[bytes], Any]] = [decode_from_agent, decode_from_hub]
# A message of the largest size decodes to lists of small objects: some 60 bytes for each byte.
MEMORY_MAX = 100 * MAX_MESSAGE_BYTES
TIME_MAX_S = 1.0


def decodes_or_refuses(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(WireError):
            decode(data)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(ENCODED)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(("flip", "cut", "insert", "repeat"))):
            case "flip" if data:
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 20))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=20))
            case "repeat":
                data += data[at : at + 50]
    return bytes(data)


@given(st.binary(max_size=2_000))
@example(b"")
@example(b"\xc1")
@settings(deadline=1_000)
def test_random_bytes(data: bytes) -> None:
    decodes_or_refuses(data)


@given(mutated())
@settings(deadline=1_000, max_examples=500)
def test_mutated_messages(data: bytes) -> None:
    decodes_or_refuses(data)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from(ENCODED), st.data())
@settings(deadline=1_000, max_examples=300)
def test_right_fields_with_wrong_values(encoded: bytes, data: st.DataObject) -> None:
    message = msgspec.msgpack.decode(encoded)
    field = data.draw(st.sampled_from(sorted(message)))
    message[field] = data.draw(VALUES)
    decodes_or_refuses(msgspec.msgpack.encode(message))


HUGE = 2**32 - 1
HOSTILE: dict[str, bytes] = {
    "array of 4 billion": b"\xdd" + struct.pack(">I", HUGE),
    "map of 4 billion": b"\xdf" + struct.pack(">I", HUGE),
    "bytes of 4 GB": b"\xc6" + struct.pack(">I", HUGE),
    "string of 4 GB": b"\xdb" + struct.pack(">I", HUGE),
    "extension of 4 GB": b"\xc9" + struct.pack(">I", HUGE) + b"\x01",
    "uses of 4 billion": encode(FROM_AGENT["frame"]).replace(
        b"\xa4uses\x92", b"\xa4uses\xdd" + struct.pack(">I", HUGE)),
    "deep arrays": b"\x91" * 900_000,
    "deep maps": b"\x81\xa1a" * 300_000,
    "deep unknown field": b"\x82\xa4type\xa3ack\xa1x" + b"\x91" * 900_000,
    "wide unknown field": b"\x82\xa4type\xa3ack\xa1x\xdd" + struct.pack(">I", 900_000)
    + b"\xc0" * 900_000,
    "many keys": b"\xdf" + struct.pack(">I", 250_000) + b"\xa1a\xc0" * 250_000,
    "too long": b"\xc0" * (MAX_MESSAGE_BYTES + 1),
    "not UTF-8": b"\x82\xa4type\xa3ack\xa1\xff\xc0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sizes_cost_little(name: str) -> None:
    data = HOSTILE[name]
    tracemalloc.start()
    began = time.perf_counter()
    decodes_or_refuses(data)
    took_s = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY_MAX
    assert took_s < TIME_MAX_S


def test_uses_of_4_billion_is_what_it_claims() -> None:
    assert HOSTILE["uses of 4 billion"] != encode(FROM_AGENT["frame"])


def a_frame(**changes: Any) -> bytes:
    return encode(msgspec.structs.replace(FRAME, **changes))


def one_value(value: float) -> bytes:
    return pack([value] + [0.0] * (2 * WIDTH - 1))


OUTSIDE: dict[str, bytes] = {
    "values too short": a_frame(values=FRAME.values[:-8]),
    "values not whole": a_frame(values=FRAME.values[:-1]),
    "absent too long": a_frame(absent=FRAME.absent + b"\0"),
    "one state more": a_frame(states=FRAME.states + b"\0"),
    "state of no meaning": a_frame(states=bytes([0, len(wire.GPU_STATES)])),
    "absence of no meaning": a_frame(absent=bytes([max(Absence) + 1]) + FRAME.absent[1:]),
    "not a number": a_frame(values=one_value(math.nan)),
    "infinite": a_frame(values=one_value(-math.inf)),
    "time is not a number": a_frame(taken_at=math.nan),
    "no time passed": a_frame(interval_s=0.0),
    "seq 0": a_frame(seq=0),
    "seq beyond exact floats": a_frame(seq=2**53 + 1),
    "use of a Gpu that is not there": a_frame(
        tasks=Tasks(False, (), (Use(TASK.id, 2, None, None),))),
    "negative memory": a_frame(tasks=Tasks(False, (), (Use(TASK.id, 0, -1.0, None),))),
    "more than all of the SMs": a_frame(tasks=Tasks(False, (), (Use(TASK.id, 0, None, 100.1),))),
    "too many tasks": a_frame(
        tasks=Tasks(False, (), (Use("t", 0, None, None),) * (MAX_TASKS + 1))),
    "too many Gpus": encode(wire.Inventory(1, (FACTS[1],) * (MAX_GPUS + 1))),
    "no name": encode(wire.Inventory(1, (msgspec.structs.replace(FACTS[1], name=""),))),
    "name too long": encode(wire.Inventory(
        1, (msgspec.structs.replace(FACTS[1], name="x" * 129),))),
    "command too long": a_frame(tasks=Tasks(
        True, (msgspec.structs.replace(TASK, command="x" * 4_097),), ())),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_beyond_the_limits_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode_from_agent(OUTSIDE[name])


def test_at_the_limits_is_taken() -> None:
    rows = MAX_GPUS * WIDTH
    frame = Frame(
        seq=2**53, taken_at=-1e12, interval_s=86_400, generation=2**53, values=bytes(rows * 8),
        absent=bytes([Absence.UNKNOWN]) * rows, states=bytes([2]) * MAX_GPUS,
        tasks=Tasks(True, (), (Use("t" * 128, MAX_GPUS - 1, 1e18, 100.0, "zombie"),) * MAX_TASKS),
    )
    assert decode_from_agent(encode(frame)) == frame
