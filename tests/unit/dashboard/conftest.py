"""Installs the access rows of the REST interface, as the hub does."""

from dashboard.openapi import routes as routes
