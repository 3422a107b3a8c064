"""REST routes of users and tokens: parse, call the service, answer. The service decides what is
allowed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from flask import Response, request

from ..web.answers import answer, bad
from .account_admin import AccountChange
from .credentials import SignInOrigin
from .gate import RequestAuthenticator
from .passwords import flaw
from .policy import PEOPLE, PermissionReach, Role, Scope, name_flaw, scope_flaw
from .requests import caller
from .routes import Route, change, see
from .services import AccessServices
from .sign_in import set_cookies
from .store import TOKEN_LASTS_MOST_S
from .views import (
    CurrentActorView,
    NewToken,
    NewUser,
    PasswordConfirmation,
    ReauthenticationView,
    SessionList,
    SignInList,
    SignInView,
    TokenList,
    TokenView,
    UserChange,
    UserList,
    UserView,
    session_view,
    token_view,
    user_view,
)


@dataclass(eq=False, slots=True)
class AccountsApi:
    access: AccessServices
    auth: RequestAuthenticator
    url: Callable[[], str]
    second_person: bool

    def me(self) -> CurrentActorView:
        actor = caller()
        assert actor.role is not None, "agents may not use this"
        session = self.auth.session(request.environ)
        return CurrentActorView(
            "program" if actor.kind == "program" else "person", actor.name, actor.role.value,
            [*actor.scope.groups], [*actor.scope.unix_names], actor.fresh_until,
            self.second_person,
            "provider" if session is not None and session.how == "oidc" else "password")

    # -- users

    def users(self) -> UserList:
        return UserList([user_view(user) for user in self.access.accounts.users.values()])

    def add_user(self, new_user: NewUser) -> UserView:
        scope = _scope(new_user.groups, new_user.unix_names)
        _check(name_flaw(new_user.name) or flaw(new_user.password, new_user.name))
        user, code = self.access.admin.add_user(caller(), new_user.name, Role(new_user.role), scope,
                                           new_user.password)
        view = user_view(user)
        view.link = None if code is None else self._link(code)
        return view

    def change_user(self, patch: UserChange, name: str) -> UserView:
        _check(flaw(patch.password, name))
        change = AccountChange(
            None if patch.role is None else Role(patch.role),
            None if patch.groups is None else tuple(patch.groups),
            None if patch.unix_names is None else tuple(patch.unix_names), patch.password)
        return user_view(self.access.admin.change_user(caller(), name, change))

    def reset_password(self, name: str) -> UserView:
        code = self.access.admin.reset_password(caller(), name)
        view = user_view(self.access.accounts.users[name])
        view.link = self._link(code)
        return view

    def _link(self, code: str) -> str:
        return f"{self.url()}/sign-in?code={code}"

    def remove_user(self, name: str) -> None:
        self.access.admin.remove_user(caller(), name)

    # -- tokens

    def tokens(self) -> TokenList:
        return TokenList([token_view(token) for token in self.access.accounts.tokens()])

    def add_token(self, new_token: NewToken) -> TokenView:
        now = time.time()
        if not now < new_token.expires_at <= now + TOKEN_LASTS_MOST_S:
            raise bad("expires_at is in UTC seconds, after now and within a year")
        word, token = self.access.admin.add_token(
            caller(), new_token.name, Role(new_token.role),
            _scope(new_token.groups, new_token.unix_names), new_token.expires_at)
        view = token_view(token)
        view.token = word
        return view

    def remove_token(self, token_id: str) -> None:
        self.access.admin.remove_token(caller(), token_id)

    # -- sessions

    def sessions(self) -> SessionList:
        actor = caller()
        return SessionList([session_view(session, session.id == actor.credential)
                            for session in self.access.sessions.list(actor)])

    def end_session(self, session_id: str) -> None:
        self.access.sessions.end(caller(), session_id)

    def sign_out_everywhere(self) -> None:
        self.access.sessions.sign_out_everywhere(caller())

    def fresh(self, confirmation: PasswordConfirmation) -> Response:
        sign_in = self.access.credentials.step_up(caller(), confirmation.password,
                                      SignInOrigin(request.environ["gpudeck.address"]))
        response = answer(ReauthenticationView(sign_in.session.fresh_until))
        set_cookies(response, self.auth, sign_in)
        return response

    def sign_ins(self) -> SignInList:
        return SignInList([
            SignInView(record.at, record.name, record.address, record.how, record.outcome)
            for record in self.access.admin.sign_ins(caller())])


def _check(problem: str | None) -> None:
    if problem is not None:
        raise bad(problem)


def _scope(groups: list[str], unix_names: list[str]) -> Scope:
    scope = Scope.of(groups, unix_names)
    _check(scope_flaw(scope))
    return scope


ROUTES = (
    Route("GET me", AccountsApi.me, "me", see(Role.VIEWER, PermissionReach.NONE),
          "The caller and their permissions."),
    Route("GET users", AccountsApi.users, "list_users", see(Role.ADMIN, PermissionReach.NONE),
          "All users."),
    Route("POST users", AccountsApi.add_user, "add_user", change(Role.ADMIN, PermissionReach.GRANT),
          "Create a user; without a password, `link` is a one-time link to set one.", status=201),
    Route("PATCH users/<name>", AccountsApi.change_user, "change_user",
          change(Role.VIEWER, PermissionReach.SELF),
          "Ends their sessions. A user without the admin role may only change their own password.",
          errors=(404, 409)),
    Route("DELETE users/<name>", AccountsApi.remove_user, "remove_user", change(Role.ADMIN),
          "Ends their sessions.", errors=(404, 409)),
    Route("POST users/<name>/link", AccountsApi.reset_password, "reset_password",
          change(Role.ADMIN),
          "Clears the password and ends the sessions; `link` is a one-time link to set a new one.",
          status=201, errors=(404,)),
    Route("GET tokens", AccountsApi.tokens, "list_tokens", see(Role.ADMIN, PermissionReach.NONE),
          "All API tokens, without their secrets."),
    Route("POST tokens", AccountsApi.add_token, "add_token",
          change(Role.ADMIN, PermissionReach.GRANT),
          "Create an API token; `token` is shown only once.", status=201),
    # Taking away must never have to wait for a password.
    Route("DELETE tokens/<token_id>", AccountsApi.remove_token, "remove_token",
          change(Role.ADMIN, is_fresh=False),
          "Revoke an API token.", errors=(404,)),
    Route("GET sessions", AccountsApi.sessions, "list_sessions",
          see(Role.VIEWER, PermissionReach.SELF),
          "Your own sessions; admins see all."),
    Route("DELETE sessions/<session_id>", AccountsApi.end_session, "end_session",
          change(Role.VIEWER, PermissionReach.SELF, is_fresh=False),
          "End a session of yours; admins can end any.", errors=(404,)),
    Route("POST sign-out-everywhere", AccountsApi.sign_out_everywhere, "sign_out_everywhere",
          change(Role.VIEWER, is_fresh=False, kinds=PEOPLE),
          "End all of your own sessions."),
    Route("POST fresh", AccountsApi.fresh, "fresh",
          change(Role.VIEWER, is_fresh=False, kinds=PEOPLE),
          "Confirm your password; this permits disruptive actions for five minutes.",
          answer=ReauthenticationView, errors=(429,)),
    Route("GET sign-ins", AccountsApi.sign_ins, "list_sign_ins",
          see(Role.ADMIN, PermissionReach.NONE),
          "The latest 200 sign-in attempts, newest first."),
)
