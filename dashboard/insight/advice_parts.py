"""Composition of estimates, advice and quality of service."""

import time

from ..audit.recorder import AuditRecorder
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleetCache
from ..history.protocol import History
from ..pool.service import PoolService
from ..web.query_pool import QueryPool
from .advice_api import AdviceApi
from .advice_service import AdviceService, KeyValueStore
from .estimates_api import EstimatesApi
from .qos_api import QosApi
from .qos_service import QosService, TeamMembers


def qos_over(fleet: Fleet, teams: TeamMembers, pool: PoolService, store: KeyValueStore,
             audit: AuditRecorder) -> QosService:
    return QosService(fleet, teams, pool, store, audit, time.time)


def advice_apis(fleet: Fleet, visible_fleets: VisibleFleetCache, history: History,
                questions: QueryPool, pool: PoolService, store: KeyValueStore, audit: AuditRecorder,
                least_h: int, qos: QosService) -> tuple[EstimatesApi, AdviceApi, QosApi]:
    service = AdviceService(fleet, history, questions, lambda: pool.nodes,
                            lambda: pool.policy.strategy, store, audit, least_h)
    return (EstimatesApi(fleet, visible_fleets), AdviceApi(service, visible_fleets),
            QosApi(qos, visible_fleets))
