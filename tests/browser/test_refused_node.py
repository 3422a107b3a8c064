"""A node that sends more than allowed: until when it is refused, and for what, is said where people
look for that node."""

import contextlib
import re
from collections.abc import Callable

import pytest
import websocket
from playwright.sync_api import Page

from gpudeck.contract.wire import EVENT, Beat, GpuFacts, Inventory, encode
from tests.demos import soon
from tests.integration.hubs import Caller, HubProcess, raw_agent

pytestmark = pytest.mark.browser
WORDS = re.compile(r"Refused until [\w: ]*\d\d:\d\d: it sent more than 20 messages a second")


def test_a_node_that_is_refused_is_said_to_be(
        hub: HubProcess, open_page: Callable[..., Page]) -> None:
    raw = raw_agent(hub, "flood")
    raw.emit(EVENT, encode(Inventory(1, (GpuFacts("GPU-flood", 0, "NVIDIA H100"),))))
    with contextlib.suppress(OSError, websocket.WebSocketException):
        for _ in range(2_000):
            raw.emit(EVENT, encode(Beat("ok", 0.0, 0, 0)))
    node_id = Caller("flood").node_id
    assert soon(lambda: hub.get(f"/api/v1/nodes/{node_id}")["refused"] is not None)
    refusal = hub.get(f"/api/v1/nodes/{node_id}")["refused"]
    assert refusal["why"] == "it sent more than 20 messages a second"
    page = open_page("/settings#nodes")
    assert soon(lambda: WORDS.search(page.inner_text("main"))), page.inner_text("main")
    page = open_page(f"/node/{node_id}")
    assert soon(lambda: WORDS.search(page.inner_text("#lines-state")))
    assert soon(lambda: "Refused by the hub" in page.inner_text("#lines-side"))
