"""Socket.IO packets: the short way to an agent's message agrees with the long one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.web.envelopes import EVENT, decode_envelope, one_argument
from gpudeck.network.websocket import WebSocketViolationError

PACKET: dict[str, Any] = {"type": EVENT, "nsp": "/agent", "data": ["wire", b"payload"]}
values = st.one_of(st.none(), st.integers(-3, 8), st.floats(allow_nan=False), st.text(max_size=5),
                   st.binary(max_size=5), st.sampled_from(["/agent", "wire", EVENT, float(EVENT)]))


def argument(encoded: bytes) -> bytes | None:
    """Return what `one_argument` returns, by the long way."""
    try:
        envelope = decode_envelope(encoded)
    except WebSocketViolationError:
        return None
    if envelope.type != EVENT or envelope.nsp != "/agent":
        return None
    match envelope.data:
        case ["wire", bytes(payload)]:
            return payload
    return None


def test_the_bytes_of_the_event_are_returned() -> None:
    assert one_argument(msgspec.msgpack.encode(PACKET), "wire", "/agent") == b"payload"


@pytest.mark.parametrize("other", [
    {"nsp": "/live"}, {"data": ["other", b""]}, {"type": 0}, {"data": ["wire", "text"]},
    {"data": ["wire"]}, {"data": ["wire", b"", b""]}, {"data": {}}, {"id": "x"}])
def test_bytes_of_another_event_or_namespace_are_not_it(other: dict[str, Any]) -> None:
    assert one_argument(msgspec.msgpack.encode(PACKET | other), "wire", "/agent") is None


@given(st.dictionaries(st.sampled_from(["type", "nsp", "id", "more"]), values, max_size=3),
       st.one_of(st.none(), values, st.lists(values, max_size=3)), st.integers(0, 40))
def test_it_is_the_long_way_whatever_comes(fields: dict[str, Any], data: object, cut: int) -> None:
    packet = PACKET | fields | ({} if data is None else {"data": data})
    encoded = msgspec.msgpack.encode(packet)
    for part in (encoded, encoded[:-cut] if cut else encoded):
        assert one_argument(part, "wire", "/agent") == argument(part)
