"""The hub: its capabilities, built in their order."""

import sys

from gpudeck import __version__

from .access.gate import AccessGate
from .actions.signer_client import SignerClient, start_signer
from .audit.recorder import AuditRecorder
from .capabilities import CAPABILITIES, wiring_of
from .composition import Core, HubGreenlets
from .nodes.connections import HubIdentity
from .public_url import PublicOrigins
from .runtime.heap import settle_garbage
from .settings import HubSettings
from .state import HubState

SWITCH_S = 0.001
# Imported with this module, so that a standby that becomes active need not wait for it.
BUILDERS = tuple(wiring_of(name).build for name in CAPABILITIES)


class Hub:
    """A running hub. `core` has its parts, by their type."""

    def __init__(self, settings: HubSettings, state: HubState, port: int,
                 signer: SignerClient | None = None) -> None:
        signer = signer or start_signer(settings)
        signer.wait()
        site = PublicOrigins.at(settings.bind[0], port, settings.tls_cert is not None,
                                settings.public_url)
        self.core = Core(settings, state, site, _epoch(state, signer))
        self.core.add(signer, HubIdentity)
        self.core.build(BUILDERS)
        self.wsgi = self.core.get(AccessGate)

    def start(self) -> HubGreenlets:
        core = self.core
        core.state.started()
        core.get(AuditRecorder).note("hub", {"action": "start", "outcome": "done", "detail": {
            "epoch": core.epoch, "version": __version__}})
        running = core.start()
        # By default the loop would wait 5 ms for each thread of history that computes.
        sys.setswitchinterval(SWITCH_S)
        settle_garbage()
        return running


def _epoch(state: HubState, signer: SignerClient) -> int:
    """Return a new epoch above all earlier ones: a restored state.db does not know them all."""
    epoch = max(state.next_epoch(), signer.epoch + 1)
    state.put("epoch", str(epoch))
    return signer.raise_epoch(epoch)
