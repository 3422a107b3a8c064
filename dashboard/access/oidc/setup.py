"""Setup of the sign-in at the site's provider from the hub's settings."""

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
from .groups import ProviderGroups
from .routes import OidcRoutes, add_oidc
from .service import OidcService


class Configured(Protocol):
    """The hub's settings for this sign-in."""

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


def oidc_settings(settings: Configured) -> OidcSettings | None:
    """Return the provider's settings; None: it is not configured. Raises CommandError where the
    configuration is incomplete, so that the hub does not start."""
    if settings.oidc_issuer is None:
        return None
    try:
        if not settings.oidc_client_id:
            raise ValueError("oidc_client_id is needed: the id under which the provider knows this "
                             "hub")
        group_grants = grants(settings.oidc_roles)
        if not group_grants:
            raise ValueError("oidc_roles is needed: without it nobody could sign in; write for "
                             "example gpu-admins=admin, staff=user")
        return OidcSettings(issuer(settings.oidc_issuer), settings.oidc_client_id,
                            settings.oidc_client_secret, group_grants, settings.oidc_groups_claim,
                            settings.oidc_name_claim, settings.oidc_scopes)
    except ValueError as error:
        raise CommandError(f"sign-in at the site's provider: {error}", ExitCode.USAGE) from error


def add_sign_ins(server: Flask, auth: RequestAuthenticator, access: AccessServices,
                 settings: Configured, store: OidcStore, groups: ProviderGroups, audit: AuditLog,
                 url: Callable[[], str]) -> None:
    oidc = oidc_settings(settings)
    service = None if oidc is None else _service(oidc, store, groups, access, audit, url)
    pages = SignInRoutes(auth, access, service is not None,
                         _nowhere if service is None else service.sign_out_url)
    add_sign_in(server, pages)
    add_oidc(server, OidcRoutes(auth, service, pages))


def _service(settings: OidcSettings, store: OidcStore, groups: ProviderGroups,
             access: AccessServices, audit: AuditLog, url: Callable[[], str]) -> OidcService:
    try:
        from .provider import OidcProvider
    except ImportError as error:
        raise CommandError("sign-in at the site's provider needs: pip install 'gpudeck[oidc]'",
                           ExitCode.CANNOT_START) from error

    return OidcService(OidcProvider(settings), store, groups, access, audit, url, in_thread)


def _nowhere(_: str) -> str | None:
    return None
