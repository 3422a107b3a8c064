"""Parts of jobs, teams and schedulers."""

from functools import partial

from ..access.oidc.groups import ProviderGroups
from ..audit.recorder import AuditRecorder
from ..composition import Capability, Core
from ..fleet.effect_handlers import EffectHandlers
from ..fleet.effects import StreamRecord
from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleetCache
from ..history.reads.protocol import History
from ..history.usage_names import UsageNames
from ..pool.wiring import TEAMS_OF
from ..quotas.service import QuotaService
from ..web.query_pool import QueryPool
from .api import ROUTES as ROUTES
from .api import JobsApi
from .queries import JobQueries
from .schedulers import SchedulerQueries
from .service import JobsService
from .store import JobsStore
from .usage_names import JobUsageNames

DAY_S = 86_400.0


def build(core: Core) -> Capability:
    settings, state, fleet = core.settings, core.state, core.get(Fleet)
    quotas, visible_fleets = core.get(QuotaService), core.get(VisibleFleetCache)
    jobs = core.add(JobsService(
        fleet, state.store(JobsStore), core.get(AuditRecorder), lambda: quotas.groups,
        core.get(ProviderGroups).of_users, settings.history_minute_days * DAY_S))
    schedulers = SchedulerQueries(fleet, settings.slurm_nodes, settings.kubernetes_nodes)
    core.add(JobUsageNames(jobs, partial(state.another, JobsStore)), UsageNames)
    core.join(TEAMS_OF, jobs.teams_of)
    core.get(EffectHandlers).add(StreamRecord, jobs.receive)
    return Capability(
        loops=(jobs.loop,), metrics=schedulers.texts,
        apis=lambda: (JobsApi(jobs, JobQueries(jobs, fleet, visible_fleets, core.get(History)),
                              visible_fleets, core.get(QueryPool), schedulers),))
