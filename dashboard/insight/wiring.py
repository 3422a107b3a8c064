"""Parts of forecasts, advice, estimates and quality of service."""

import time

from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleetCache
from ..history.reads.protocol import History
from ..jobs.service import JobsService
from ..pool.service import PoolService
from ..web.query_pool import QueryPool
from .advice_api import ROUTES as ADVICE_ROUTES
from .advice_api import AdviceApi
from .advice_service import AdviceService
from .api import ROUTES as OWN_ROUTES
from .api import InsightApi
from .estimates_api import ROUTES as ESTIMATES_ROUTES
from .estimates_api import EstimatesApi
from .qos_api import ROUTES as QOS_ROUTES
from .qos_api import QosApi
from .qos_service import QosService

ROUTES = (*ADVICE_ROUTES, *ESTIMATES_ROUTES, *OWN_ROUTES, *QOS_ROUTES)


def build(core: Core) -> Capability:
    state, audit, history, pool = (core.state, core.get(AuditRecorder), core.get(History),
                                   core.get(PoolService))
    fleet, visible_fleets = core.get(Fleet), core.get(VisibleFleetCache)
    insight = InsightApi.over(history, fleet, visible_fleets, pool, state)
    qos = QosService(fleet, core.get(JobsService), pool, state, audit, time.time)
    advice = AdviceService(fleet, history, core.get(QueryPool), lambda: pool.nodes,
                           lambda: pool.policy.strategy, state, audit,
                           core.settings.advice_least_h)
    return Capability(
        loops=(insight.service.loop, qos.loop),
        apis=lambda: (insight, EstimatesApi(fleet, visible_fleets),
                      AdviceApi(advice, visible_fleets), QosApi(qos, visible_fleets)))
