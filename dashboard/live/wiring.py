"""The live socket of browsers, and what is announced on it."""

from msgspec import to_builtins

from ..access.events import CredentialEnded
from ..access.gate import RequestAuthenticator
from ..access.service import AccountService
from ..actions.events import HoldChanged
from ..actions.holds import HoldService
from ..alerts.queries import AlertQueries
from ..alerts.silences import SilenceService
from ..automation.alert_details import AlertDetails
from ..composition import Capability, Core
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.effects import StreamRecord
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..pool.lease_map import LeaseMap
from ..pool.queries import PoolQueries
from ..pool.service import PoolService
from ..web.bounded_socket import BoundedSocketIO
from .announcements import Announcements
from .socket import LiveEndpoint


def build(core: Core) -> Capability:
    machine, holds = core.get(FleetStateMachine), core.get(HoldService)
    live = LiveEndpoint(
        core.get(BoundedSocketIO).server, machine, core.get(VisibleFleetCache),
        core.get(AccountService).holds, core.get(RequestAuthenticator).is_csrf_right,
        lambda visible: to_builtins(holds.state(visible)),
        LeaseMap(core.get(PoolService), machine.fleet))
    core.events.listen(CredentialEnded,
                       lambda event: live.viewers.end_credential(event.credential))
    core.events.listen(HoldChanged, lambda _: live.hold_changed())
    Announcements(core.events, live, core.get(AlertQueries), core.get(SilenceService),
                  core.get(AlertDetails), core.get(PoolQueries))

    def applied(record: StreamRecord) -> None:
        if record.seq:
            live.applied(record)

    core.get(EffectHandlers).add(StreamRecord, applied)
    return Capability(tasks=(live.run,),
                      stop=lambda: live.viewers.end_all("the hub is shutting down"))
