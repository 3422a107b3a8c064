"""Report of a node about itself: Hello when it connects, Beat from then on."""

import os
import time
from collections.abc import Iterable, Sequence

from msgspec import UNSET

from gpudeck import __version__
from gpudeck.contract import wire
from gpudeck.contract.action_table import Action, ShownAction
from gpudeck.contract.message_limits import FIRST_ACTIONS

from ..actions.context import ActionGuards
from ..actions.hub_record import HubRecord
from ..capability import Capability, NodeCore
from ..link.identity import new_call
from ..telemetry.latest_sample import LatestSample
from ..telemetry.self_cost import ProcessCostMeter, outbox_files, size_of

# Actions that hubs which read no more than FIRST_ACTIONS do not know.
NEWER: tuple[Action, ...] = ("suspend", "restore", "set_time_slice")


def listed_actions(permitted: Iterable[ShownAction]
                   ) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """Return the actions that a hub of before reads as well, and the rest."""
    actions: list[Action] = sorted(("hold", "release", *permitted), key=NEWER.__contains__)
    return tuple(actions[:FIRST_ACTIONS]), tuple(actions[FIRST_ACTIONS:])


class SelfReport:
    """Credentials of the node, and its state in each Beat."""

    def __init__(self, core: NodeCore, platform: str, latest: LatestSample, hub: HubRecord,
                 guards: ActionGuards, capabilities: Sequence[Capability]) -> None:
        """`capabilities`: learn the hub's key, and report their troubles."""
        self._core = core
        self._platform = platform
        self._latest = latest
        self._hub = hub
        self._guards = guards
        self._capabilities = capabilities
        # With a simulator's many nodes in one process, costs cannot be told apart.
        self._meter = None if core.is_made_up else ProcessCostMeter()

    def call(self) -> wire.Call:
        return new_call()

    def hello(self, call: wire.Call, challenge: wire.Challenge) -> wire.Hello:
        core, ceiling = self._core, self._guards.ceiling()
        actions, more = listed_actions(ceiling.permitted_actions)
        identity = core.identity
        hello = identity.prove(call, challenge, wire.Hello(
            wire_versions=wire.SPOKEN_VERSIONS, key=identity.key.public, signature=b"",
            node_id=identity.node_id, host=core.host, boot_id=core.boot_id,
            stream=core.outbox.stream, last_seq=core.outbox.last_seq, agent_version=__version__,
            backend=core.backend.name, platform=self._platform[:1_024],
            driver_version=self._latest.driver_version, cuda_version=self._latest.cuda_version,
            epoch_seen=self._hub.epoch, actions=actions,
            more_actions=more or UNSET, rules=ceiling.rules,
            anchor_seq=self._hub.anchor.audit_seq,
            anchor_head=self._hub.anchor.audit_head))
        for capability in self._capabilities:
            capability.accept_hub_key(challenge.hub_key)
        return hello

    def beat(self) -> wire.Beat:
        source, outbox = self._core.source, self._core.outbox
        seq, head = self._core.journal.audit.head
        detail = "; ".join(filter(None, (
            outbox.trouble, source.detail,
            *(capability.trouble() for capability in self._capabilities))))
        return wire.Beat(
            reader=source.state, reading_age_s=source.age_s,
            pending=outbox.pending, dropped=outbox.dropped, detail=detail[:1_024],
            holds=tuple(hold[:1_024] for hold in self._hub.holds()[:8]), audit_seq=seq,
            audit_head=head, first_seq=outbox.first_seq, cost=self._cost(),
            is_in_memory=bool(outbox.trouble),
            copies=outbox.copies(time.monotonic(), time.time()))

    def _cost(self) -> wire.Cost | None:
        if self._meter is None:
            return None
        source = self._core.source
        return self._meter.take(source.pids | {os.getpid()}, source.read_s,
                                size_of(outbox_files(self._core.data)))
