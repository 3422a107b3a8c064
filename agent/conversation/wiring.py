"""Wiring of the conversation with the hub: it is built last, from what all others bring."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from gpudeck.contract import wire

from ..actions.context import ActionGuards
from ..actions.hub_record import HubRecord
from ..capability import Capability, NodeCore, handler_table
from ..link.admission import ConnectLimiter
from ..link.protocol import LinkStateMachine
from ..link.socket import HubLink, TlsOf
from ..telemetry.latest_sample import LatestSample
from .conversation import HubConversation, UnknownMessageLog
from .report import SelfReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    hubs: Sequence[str]  # URLs of one hub, in the order in which they are tried; (): alone
    tls_of: TlsOf
    platform: str
    limiter: ConnectLimiter | None  # of the nodes of one process


def build(core: NodeCore, options: ConversationOptions, latest: LatestSample, hub: HubRecord,
          guards: ActionGuards, capabilities: Sequence[Capability],
          send_all_again: Callable[[], None]) -> HubConversation:
    report = SelfReport(core, options.platform, latest, hub, guards, capabilities)
    link = HubLink(options.hubs, options.tls_of, core.wake)
    machine = LinkStateMachine(core.outbox, report, random.uniform, len(options.hubs))
    unknown = UnknownMessageLog()

    def advance(message: wire.FromHub, now: float) -> None:
        machine.receive(message, now, time.time())

    def welcome(message: wire.Welcome, now: float) -> None:
        advance(message, now)
        if machine.phase == "live":
            for capability in capabilities:
                capability.connected(message, now)

    own = Capability(name="conversation", handlers={
        wire.Challenge: advance, wire.Welcome: welcome, wire.Refused: advance,
        wire.Ack: advance, wire.Probe: advance,
        wire.Ignored: unknown.log_older, wire.UnknownMessage: unknown.log_newer,
    })
    handlers = handler_table((*capabilities, own), get_args(wire.FromHub))
    return HubConversation(core, link, machine, handlers, unknown, latest, report.beat,
                           send_all_again, options.limiter)
