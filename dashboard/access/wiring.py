"""Parts of access: accounts, sign-ins, and the checks before each request."""

from flask import Flask

from ..composition import Capability, Core
from ..runtime.data_folder import token_in
from ..runtime.runner import Loop
from ..web.idempotency import add_once
from .api import ROUTES as ROUTES
from .api import AccountsApi
from .gate import CookieNames, RequestAuthenticator, add_second_check
from .oidc.groups import ProviderGroups
from .oidc.setup import add_sign_ins
from .passwords import PasswordService
from .protocols import AuditLog, SignInNotes
from .requests import caller
from .service import REFRESH_EVERY_S
from .services import AccessServices
from .store import OidcStore


def build(core: Core) -> Capability:
    settings, state, audit = core.settings, core.state, core.get(AuditLog)
    access = core.add(AccessServices(state, core.get(SignInNotes), PasswordService(), audit,
                                     core.events))
    core.add(access.accounts)
    access.admin.sync_file_token(token_in(settings.data / "api.token"))
    auth = core.add(RequestAuthenticator(
        access.accounts, CookieNames.of(state.hub_id(), core.site.is_secure),
        settings.trusted_proxies, settings.proxy_user_header))
    server = core.get(Flask)
    add_second_check(server)
    add_once(server, lambda: caller().credential)
    groups = core.add(ProviderGroups(state.store(OidcStore), lambda: access.accounts.users))
    add_sign_ins(server, auth, access, settings, state.store(OidcStore), groups, audit,
                 lambda: core.site.url)
    return Capability(
        loops=(Loop("accounts", access.accounts.step, REFRESH_EVERY_S),),
        apis=lambda: (AccountsApi(access, auth, lambda: state.get("url") or "",
                                  settings.second_person == "on"),),
        close=access.sign_ins.write_rest)
