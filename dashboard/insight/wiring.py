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
from .fleet_boards import fleet_boards
from .qos_api import ROUTES as QOS_ROUTES
from .qos_api import QosApi
from .qos_service import QosService
from .queries import ForecastQueries, boards
from .queue_history import QueueHours
from .service import InsightService

ROUTES = (*ADVICE_ROUTES, *ESTIMATES_ROUTES, *OWN_ROUTES, *QOS_ROUTES)


def build(core: Core) -> Capability:
    state, audit, history, pool = (core.state, core.get(AuditRecorder), core.get(History),
                                   core.get(PoolService))
    fleet, visible_fleets = core.get(Fleet), core.get(VisibleFleetCache)
    insight = InsightService(history, lambda: boards(fleet), pool, QueueHours(state))
    qos = QosService(fleet, core.get(JobsService), pool, state, audit, time.time)
    advice = AdviceService(fleet, history, core.get(QueryPool), lambda: pool.nodes,
                           lambda: pool.policy.strategy, state, audit,
                           core.settings.advice_least_h)
    return Capability(
        loops=(insight.loop, qos.loop),
        apis=lambda: (
            InsightApi(ForecastQueries(insight, fleet), visible_fleets),
            EstimatesApi(lambda visible: fleet_boards(fleet, visible, time.monotonic()),
                         visible_fleets),
            AdviceApi(advice, visible_fleets), QosApi(qos, visible_fleets)))
