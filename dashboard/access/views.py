"""Request and answer types of the REST routes of users and tokens, and of the terminal's lists."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from .passwords import LEAST_LENGTH, MOST_LENGTH
from .store import ApiToken, Session, User

RoleWord = Literal["viewer", "user", "operator", "admin"]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._@+-]{0,63}$")]
Group = Annotated[str, Meta(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,63})$")]
UnixName = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f\x7f,:/]{1,128}$")]
Groups = Annotated[list[Group], Meta(min_length=1, max_length=100)]
UnixNames = Annotated[list[UnixName], Meta(max_length=100)]
Typed = Annotated[str, Meta(max_length=MOST_LENGTH)]
Password = Annotated[str, Meta(min_length=LEAST_LENGTH, max_length=MOST_LENGTH)]
Label = Annotated[str, Meta(min_length=1, max_length=128)]
Moment = Annotated[float, Meta(ge=0, le=1e11)]


class CurrentActorView(Struct):
    kind: Literal["person", "program"]
    name: str
    role: RoleWord
    groups: list[str]
    unix_names: list[str]
    fresh_until: float | None
    second_person: bool  # an action on more than 3 jobs waits for another person
    confirms: Literal["password", "provider"]  # where a fresh sign-in is asked for


class UserView(Struct, omit_defaults=True):
    name: str
    role: RoleWord
    groups: list[str]
    unix_names: list[str]
    created_at: float
    last_sign_in_at: float | None
    has_password: bool
    link: str | None = None  # to set a password; shown once


class UserList(Struct):
    items: list[UserView]
    next: str | None = None


class NewUser(Struct, forbid_unknown_fields=True):
    name: Name
    role: RoleWord
    groups: Groups = msgspec.field(default_factory=lambda: ["*"])
    unix_names: UnixNames = []
    password: Password | None = None


class UserChange(Struct, forbid_unknown_fields=True):
    role: RoleWord | None = None
    groups: Groups | None = None
    unix_names: UnixNames | None = None
    password: Password | None = None


class TokenView(Struct, omit_defaults=True):
    id: str
    name: str
    role: RoleWord
    groups: list[str]
    unix_names: list[str]
    created_at: float
    created_by: str
    expires_at: float
    last_used_at: float | None
    token: str | None = None  # shown once


class TokenList(Struct):
    items: list[TokenView]
    next: str | None = None


class NewToken(Struct, forbid_unknown_fields=True):
    name: Label
    role: RoleWord
    expires_at: Moment
    groups: Groups = msgspec.field(default_factory=lambda: ["*"])
    unix_names: UnixNames = []


class SessionView(Struct):
    id: str
    user: str
    how: str
    address: str = msgspec.field(name="from")
    created_at: float
    last_used_at: float
    ends_at: float
    is_this: bool


class SessionList(Struct):
    items: list[SessionView]
    next: str | None = None


class SignInView(Struct):
    at: float
    name: str
    address: str = msgspec.field(name="from")
    how: str
    outcome: str


class SignInList(Struct):
    items: list[SignInView]
    next: str | None = None


class PasswordConfirmation(Struct, forbid_unknown_fields=True):
    password: Typed


class ReauthenticationView(Struct):
    fresh_until: float | None


def user_view(user: User) -> UserView:
    return UserView(user.name, user.role.value, [*user.scope.groups], [*user.scope.unix_names],
                    user.created_at, user.signed_in_at, user.password is not None)


def token_view(token: ApiToken) -> TokenView:
    return TokenView(token.id, token.name, token.role.value, [*token.scope.groups],
                     [*token.scope.unix_names], token.created_at, token.created_by,
                     token.expires_at, token.used_at)


def session_view(session: Session, is_this: bool) -> SessionView:
    return SessionView(session.id, session.user, session.how, session.address, session.created_at,
                       session.used_at, session.ends_at, is_this)
