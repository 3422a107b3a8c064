"""Table of all routes of the REST interface, each declared next to the code that serves it."""

from ..access.api import ROUTES as ACCESS
from ..access.policy import ROUTES as WEB
from ..access.policy import install
from ..actions.api import ROUTES as ACTIONS
from ..alerts.api import ROUTES as ALERTS
from ..alerts.rehearsal.api import ROUTES as ALERTS_REHEARSAL
from ..audit.api import ROUTES as AUDIT
from ..automation.api import ROUTES as AUTOMATION
from ..fleet.api import ROUTES as FLEET
from ..fleet.events_api import ROUTES as FLEET_EVENTS
from ..fleet.past_api import ROUTES as FLEET_PAST
from ..history.api import ROUTES as HISTORY
from ..imports.api import ROUTES as IMPORTS
from ..insight.advice_api import ROUTES as ADVICE
from ..insight.api import ROUTES as INSIGHT
from ..insight.estimates_api import ROUTES as ESTIMATES
from ..insight.qos_api import ROUTES as QOS
from ..jobs.api import ROUTES as JOBS
from ..nodes.api import ROUTES as NODES
from ..notifications.api import ROUTES as NOTIFICATIONS
from ..pool.api import ROUTES as POOL
from ..pool.policy import ROUTES as POOL_POLICY
from ..pool.source_api import ROUTES as RESOURCE_MANAGER
from ..quotas.api import ROUTES as QUOTAS
from ..sites.api import ROUTES as SITES

ROUTES = (
    *ACCESS, *ACTIONS, *ALERTS, *ALERTS_REHEARSAL, *AUDIT, *AUTOMATION, *FLEET, *FLEET_EVENTS,
    *FLEET_PAST, *ADVICE, *ESTIMATES, *HISTORY, *IMPORTS, *INSIGHT, *JOBS, *NODES,
    *NOTIFICATIONS, *POOL, *POOL_POLICY, *QOS, *QUOTAS, *RESOURCE_MANAGER, *SITES,
)
PERMISSIONS = (*WEB, *(route.permission for route in ROUTES))

install(PERMISSIONS)
