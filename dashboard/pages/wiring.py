"""The pages, and the gate that everything goes through."""

from dash.exceptions import DependencyException
from flask import Flask
from werkzeug.exceptions import NotFound

from ..access.coverage import check_coverage
from ..access.gate import AccessGate, RequestAuthenticator, policy
from ..composition import Capability, Core
from ..web.bounded_socket import BoundedSocketIO
from ..web.compress import add_compression
from . import build_pages
from .site import load_site_pages


def build(core: Core) -> Capability:
    server, auth, site = core.get(Flask), core.get(RequestAuthenticator), core.site
    add_compression(server)
    pages = build_pages(server, auth.cookies.csrf, load_site_pages(core.settings.data),
                        core.later(AccessGate))
    content_policy = policy(pages.csp_hashes())
    check_coverage(server, core.get(BoundedSocketIO).server.handlers, pages)
    # Dash would answer a request for an unknown script with a 500.
    server.register_error_handler(DependencyException, lambda _: NotFound())
    core.add(AccessGate(server.wsgi_app, auth, server.url_map, lambda: site,
                        lambda: content_policy))
    return Capability()
