"""Parts of the pool."""

import time
from collections.abc import Collection, Mapping

from gpudeck.contract.pool_link import PoolReport

from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core, Seam
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.effects import NodeJoined
from ..fleet.state_machine import FleetStateMachine
from ..fleet.visibility import VisibleFleetCache
from ..fleet.wiring import POOL_AT
from ..nodes.connections import NodeLinks
from ..nodes.events import NodeRevoked
from ..quotas.service import QuotaService
from ..runtime.runner import Loop
from ..web.query_pool import QueryPool
from .api import ROUTES as OWN_ROUTES
from .api import PoolApi
from .lease_map import PoolPast
from .limits import PoolLimits
from .live_numbers import live_numbers
from .policy import ROUTES as POLICY_ROUTES
from .policy import PoolPolicyApi
from .prometheus import pool_families, wait_family
from .queries import PoolQueries, due
from .service import PASS_EVERY_S, LeaseEnds, PoolService
from .source_api import ROUTES as SOURCE_ROUTES
from .source_api import ResourceManagerApi
from .store import PoolStore
from .watch import PoolWatch

ROUTES = (*OWN_ROUTES, *POLICY_ROUTES, *SOURCE_ROUTES)
TEAMS_OF: Seam[[Collection[str], Mapping[str, Collection[str]]], Mapping[str, str]] = Seam(
    "the teams of owners")


def build(core: Core) -> Capability:
    machine, audit = core.get(FleetStateMachine), core.get(AuditRecorder)
    fleet = machine.fleet
    pool = core.add(PoolService(
        core.state.store(PoolStore), fleet, machine.link_of, core.get(NodeLinks).send,
        PoolLimits(core.get(QuotaService), fleet), core.call(TEAMS_OF), core.later(LeaseEnds),
        core.settings.pool == "on", time.monotonic, time.time, machine.allowances.spend_pool,
        PoolWatch(core.events)))
    queries = core.add(PoolQueries(pool))
    pool.open(time.time())
    core.join(POOL_AT, PoolPast(pool).at)
    core.events.listen(NodeRevoked, lambda event: pool.forget(event.node_id))
    effects = core.get(EffectHandlers)
    effects.add(NodeJoined, lambda effect: pool.joined(effect.node_id))
    effects.add_report(PoolReport, pool.reported)

    def apis() -> tuple[object, ...]:
        visible_fleets = core.get(VisibleFleetCache)
        api = PoolApi(pool, queries, visible_fleets, audit)
        return (api, PoolPolicyApi(pool, visible_fleets, audit, core.get(QueryPool)),
                ResourceManagerApi(api, lambda: live_numbers(fleet, time.monotonic())))

    return Capability(
        loops=(Loop("pool", pool.step, PASS_EVERY_S, pool.wake),), apis=apis,
        metrics=lambda visible: [*pool_families(queries.nodes(visible), due(
            queries.waiting(visible, visible.reads.own), time.time()))],
        hub_metrics=lambda: [wait_family(pool.watch)])
