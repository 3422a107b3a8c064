"""Table of all routes of the REST interface, each declared next to the code that serves it."""

from ..access.policy import ROUTES as WEB
from ..access.policy import install
from ..access.routes import Route
from ..capabilities import CAPABILITIES, wiring_of

# This capability, and those after it, have no routes of their own.
ROUTES: tuple[Route, ...] = tuple(
    route for name in [*CAPABILITIES][:[*CAPABILITIES].index("openapi")]
    for route in getattr(wiring_of(name), "ROUTES", ()))
PERMISSIONS = (*WEB, *(route.permission for route in ROUTES))

install(PERMISSIONS)
