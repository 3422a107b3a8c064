"""From settings to a sign-in at the site's provider."""

from collections.abc import Callable
from typing import Protocol

from flask import Flask

from gpudeck.errors import CommandError, ExitCode

from ...runtime.native_threads import in_thread
from ..gate import RequestAuthenticator
from ..protocols import AuditLog
from ..services import AccessServices
from ..sign_in import SignInRoutes, add_sign_in
from ..store import OidcStore
from .claims import OidcSettings, grants, issuer
from .routes import OidcRoutes, add_oidc
from .service import OidcService


class Configured(Protocol):
    """The hub's settings, as far as they are about it."""

    @property
    def oidc_issuer(self) -> str | None: ...

    @property
    def oidc_client_id(self) -> str | None: ...

    @property
    def oidc_client_secret(self) -> str | None: ...

    @property
    def oidc_roles(self) -> str: ...

    @property
    def oidc_groups_claim(self) -> str: ...

    @property
    def oidc_name_claim(self) -> str: ...

    @property
    def oidc_scopes(self) -> str: ...


def oidc_settings(given: Configured) -> OidcSettings | None:
    """None: nobody asked for it. Half of it is no way in: the hub does not start."""
    if given.oidc_issuer is None:
        return None
    try:
        if not given.oidc_client_id:
            raise ValueError("oidc_client_id is needed: the id under which the provider knows this "
                             "hub")
        granted = grants(given.oidc_roles)
        if not granted:
            raise ValueError("oidc_roles is needed: without it nobody could sign in; write for "
                             "example gpu-admins=admin, staff=user")
        return OidcSettings(issuer(given.oidc_issuer), given.oidc_client_id,
                            given.oidc_client_secret, granted, given.oidc_groups_claim,
                            given.oidc_name_claim, given.oidc_scopes)
    except ValueError as error:
        raise CommandError(f"sign-in at the site's provider: {error}", ExitCode.USAGE) from error


def add_sign_ins(server: Flask, auth: RequestAuthenticator, access: AccessServices,
                 given: Configured, store: OidcStore, audit: AuditLog,
                 url: Callable[[], str]) -> None:
    known = oidc_settings(given)
    service = None if known is None else _service(known, store, access, audit, url)
    pages = SignInRoutes(auth, access, service is not None,
                         _nowhere if service is None else service.sign_out_url)
    add_sign_in(server, pages)
    add_oidc(server, OidcRoutes(auth, service, pages))


def _service(known: OidcSettings, store: OidcStore, access: AccessServices, audit: AuditLog,
             url: Callable[[], str]) -> OidcService:
    try:
        from .provider import OidcProvider
    except ImportError as error:
        raise CommandError("sign-in at the site's provider needs: pip install 'gpudeck[oidc]'",
                           ExitCode.CANNOT_START) from error

    return OidcService(OidcProvider(known), store, access, audit, url, in_thread)


def _nowhere(_: str) -> str | None:
    return None
