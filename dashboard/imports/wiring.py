"""Import of recordings."""

from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.state_machine import FleetStateMachine
from ..history.reads.embedded import EmbeddedHistory
from .api import ROUTES as ROUTES
from .api import ImportsApi
from .service import ImportService


def build(core: Core) -> Capability:
    service = ImportService(core.get(FleetStateMachine), core.get(EffectHandlers).submit,
                            core.get(AuditRecorder), core.get(EmbeddedHistory).store.keep)
    return Capability(apis=lambda: (ImportsApi(service),))
