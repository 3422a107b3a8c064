"""Parts of the nodes: their enrolment, their connections, and what they send onto the disk."""

import time
from collections.abc import Iterable

from gpudeck.contract.wire import Beat

from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.effects import (
    ArchiveGrown,
    ArchiveJoined,
    CloseLink,
    NodeJoined,
    RevokeNode,
    SendMessage,
    StreamRecord,
)
from ..fleet.fleet import Fleet
from ..fleet.node_names import NodeNames
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..history.ingest.message_places import HistoryJoined, StreamsArchived
from ..history.reads.protocol import History
from ..history.wiring import SINGLE_COPIES
from ..runtime.runner import TICK_S, Loop
from ..state import HubState
from ..web.bounded_socket import BoundedSocketIO
from ..web.http_server import ServerCounters
from .api import ROUTES as ROUTES
from .api import NodesApi
from .audit_heads import AuditHeadExchange
from .checkpoint import restore_all
from .connections import HubIdentity, NodeLinks
from .enrolment import EnrolmentService
from .events import GroupChanged, NodeRevoked
from .recorder import MessageRecorder
from .single_copies import EVERY_S as SINGLE_COPIES_EVERY_S
from .single_copies import SingleCopyWatch
from .socket import AgentEndpoint
from .store import CheckpointStore, NodeStore


def build(core: Core) -> Capability:
    machine, effects, fleet = core.get(FleetStateMachine), core.get(EffectHandlers), core.get(Fleet)
    recorder = core.add(_recovered(core, machine, effects))
    audit, identity = core.get(AuditRecorder), core.get(HubIdentity)
    nodes = core.add(EnrolmentService(core.state.store(NodeStore), identity.fingerprint, audit,
                                      core.events))
    core.add(NodeNames(fleet, core.get(VisibleFleetCache), nodes))
    nodes.apply_to(fleet, time.time())
    core.events.listen(GroupChanged, lambda event: fleet.set_group(event.node_id, event.group))
    core.events.listen(StreamsArchived, lambda event: effects.submit(ArchiveGrown(event.streams)))
    core.events.listen(NodeRevoked, lambda event: effects.submit(RevokeNode(event.node_id)))
    agents = AgentEndpoint(
        core.get(BoundedSocketIO).server, core.settings, nodes,
        lambda call: identity.challenge(call, machine.hub_id), effects.submit,
        lambda: fleet.disk_error is None, lambda: machine.streams.is_waiting,
        core.get(ServerCounters))
    core.events.listen(HistoryJoined, lambda event: _join(event, core, effects, agents))
    links = core.add(NodeLinks(machine, agents, core.state.confirm))
    anchors = AuditHeadExchange(audit, links.send_to_all)
    effects.add(StreamRecord, recorder.put)
    effects.add(SendMessage, lambda effect: agents.send(effect.link, effect.message))
    effects.add(CloseLink, lambda effect: agents.close(effect.link, effect.reason))
    effects.add(NodeJoined, lambda effect: core.guard.call(
        anchors.joined, fleet.nodes[effect.node_id].hello))
    effects.add_report(Beat, anchors.beaten)
    backfills = agents.backfills
    copies = SingleCopyWatch(core.get(History), machine)
    core.join(SINGLE_COPIES, copies.count)
    return Capability(
        hub_metrics=copies.families,
        loops=(Loop("copies", copies.step, SINGLE_COPIES_EVERY_S),
               Loop("backfills", backfills.step, TICK_S, backfills.wake, is_vital=True),
               Loop("audit heads", anchors.step, TICK_S, is_vital=True),
               Loop("ingest", agents.step, TICK_S)),
        apis=lambda: (NodesApi(nodes, machine, lambda: core.site.url),),
        writer=recorder.run, stop=recorder.stop, close=lambda: _close(recorder, agents))


def _close(recorder: MessageRecorder, agents: AgentEndpoint) -> None:
    agents.end_ingest()
    recorder.close()


def _join(event: HistoryJoined, core: Core, effects: EffectHandlers, agents: AgentEndpoint
          ) -> None:
    effects.submit(ArchiveJoined(event.streams))
    if (places := core.get(History).places) is not None:
        places.is_waiting = False
    agents.take_waiting()


def _recovered(core: Core, machine: FleetStateMachine, effects: EffectHandlers
               ) -> MessageRecorder:
    """Return the recorder; the state machine has back what the disk holds."""
    recorder = MessageRecorder(
        core.settings.data, lambda checkpoints: _save(core.state, checkpoints), machine,
        effects.submit, core.get(History), core.state.confirm)
    places = core.get(History).places
    restore_all(machine, core.state.store(CheckpointStore).all(), places)
    recorder.recover()
    if places is not None:
        machine.streams.begin_archive(places.archived)
    machine.recovered(time.time(), time.monotonic())
    return recorder


def _save(state: HubState, checkpoints: Iterable[tuple[str, bytes]]) -> None:
    """Save checkpoints over another connection, because it runs in a native thread."""
    with state.another(CheckpointStore) as store:
        store.put(checkpoints)
