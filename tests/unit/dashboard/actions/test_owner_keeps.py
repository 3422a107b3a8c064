"""Tasks that an owner asks to keep, where several nodes claim the task."""

import time
from pathlib import Path

from dashboard.access.policy import Actor, Role, Scope
from dashboard.actions.owner_keeps import OwnerKeepService
from dashboard.actions.standing_store import StandingStore
from dashboard.audit.recorder import AuditRecorder
from dashboard.audit.store import AuditStore
from dashboard.fleet.visibility import VisibleFleetCache
from dashboard.runtime.dispatcher import Dispatcher
from dashboard.state import HubState
from tests.unit.dashboard.fleet.test_stolen_key import fleet_of_claimants

TASK = "deadbeef-42-7"


def test_a_copy_that_another_node_claims_protects_nothing_but_itself(tmp_path: Path) -> None:
    """Found by attackers: who lists another node's task as their own kept people from ending it."""
    fleet = fleet_of_claimants(("liar", "deadbeef-9999"), ("n1", "deadbeef-1234"))
    state = HubState.open(tmp_path)
    audit = AuditRecorder(state.store(AuditStore), None, Dispatcher())
    keeps = OwnerKeepService(state.store(StandingStore), audit, fleet, VisibleFleetCache(fleet))

    def owner(name: str) -> Actor:
        return Actor("person", name, Role.USER, Scope(("*",), (name,)), "s", time.time() + 60)

    keeps.set(owner("liar"), f"liar/{TASK}", time.time() + 60, "mine")
    assert keeps.of_any("n1", [TASK]) is None
    keeps.set(owner("n1"), f"n1/{TASK}", time.time() + 90, "really mine")
    for node_id, because in (("n1", "really mine"), ("liar", "mine")):
        keep = keeps.of_any(node_id, [TASK])
        assert keep is not None
        assert keep.because == because
    state.close()
