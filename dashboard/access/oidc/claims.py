"""A provider's claims about a user, and the role and groups they grant here. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..policy import EVERYTHING, GROUP, RANKS, Role, name_flaw

MOST_GROUPS_SHOWN = 20
MOST_GROUPS_KEPT, GROUP_CHARS = 200, 128
_SURROGATE = re.compile(r"[\ud800-\udfff]")
LEEWAY_S = 60.0
Claims = Mapping[str, Any]


class OidcRefusedError(Exception):
    """Sign-in refused. A person reads the message: it holds only what the provider said."""


class NoRoleError(OidcRefusedError):
    """Sign-in of somebody whom none of the provider's groups gives a role here."""


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """The role that members of a provider's group get here. `groups`: groups of nodes."""

    group: str
    role: Role
    groups: tuple[str, ...] = (EVERYTHING,)


@dataclass(frozen=True, slots=True)
class OidcSettings:
    issuer: str
    client_id: str
    client_secret: str | None
    grants: tuple[GroupGrant, ...]
    groups_claim: str = "groups"
    name_claim: str = "preferred_username"
    scopes: str = "openid profile"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user at the provider, identified by `issuer` and `subject`; names and mail addresses may be
    given to somebody else later."""

    issuer: str
    subject: str
    name: str
    role: Role
    groups: tuple[str, ...]  # of nodes
    sid: str | None
    auth_time: float | None
    memberships: tuple[str, ...] = ()  # groups of the provider


def grants(raw: str) -> tuple[GroupGrant, ...]:
    """Parse `gpu-admins=admin, gpu-ops=operator:rack1+rack2, /staff=user`."""
    group_grants = []
    for part in filter(None, (item.strip() for item in raw.split(","))):
        group, is_given, rest = part.rpartition("=")
        role, _, nodes = rest.partition(":")
        if not is_given or not group.strip() or role.strip() not in [*Role]:
            raise ValueError(f"{part!r} grants nothing; write for example gpu-admins=admin, "
                             f"staff=user:rack1+rack2 with roles {', '.join(Role)}")
        groups = tuple(nodes.split("+")) if nodes else (EVERYTHING,)
        if wrong := next((name for name in groups if not GROUP.fullmatch(name)), None):
            raise ValueError(f"{wrong!r} is not a group of nodes")
        group_grants.append(GroupGrant(group.strip(), Role(role.strip()), groups))
    return tuple(group_grants)


def identity(claims: Claims, settings: OidcSettings) -> Identity:
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or (problem := name_flaw(name := name.strip().casefold())):
        raise OidcRefusedError(
            f"The provider gives no name that can be used here in its claim {settings.name_claim}"
            + (f": {problem}" if isinstance(name, str) else "") + ".")
    groups = groups_of(claims, settings.groups_claim)
    grant = _highest_grant(groups, settings.grants)
    if grant is None:
        names = ", ".join(groups[:MOST_GROUPS_SHOWN]) or "none"
        raise NoRoleError("None of your groups may sign in here. The provider sent these: "
                          f"{names}. An admin maps them with the setting oidc_roles.")
    at, sid = claims.get("auth_time"), claims.get("sid")
    return Identity(str(claims["iss"]), str(claims["sub"]), name, *grant,
                    sid if isinstance(sid, str) else None,
                    float(at) if isinstance(at, int | float) else None, memberships_of(groups))


def memberships_of(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the provider's groups by which teams are formed."""
    return tuple(sorted(filter(_is_kept, set(groups)))[:MOST_GROUPS_KEPT])


def _is_kept(group: str) -> bool:
    """Return whether a team can be formed by this group. A longer name is not cut, which would make
    another group of it; what a database cannot hold must not keep its member out."""
    return 0 < len(group) <= GROUP_CHARS and not _SURROGATE.search(group)


def _highest_grant(groups: Iterable[str], grants: Iterable[GroupGrant]
                   ) -> tuple[Role, tuple[str, ...]] | None:
    """Return the highest role granted, and the node groups it is granted for, without those of
    lower roles; None: no group grants any."""
    memberships = set(groups)
    hits = [grant for grant in grants if grant.group in memberships]
    if not hits:
        return None
    role = max((grant.role for grant in hits), key=RANKS.__getitem__)
    return role, tuple(dict.fromkeys(
        group for grant in hits if grant.role is role for group in grant.groups))


def groups_of(claims: Claims, path: str) -> list[str]:
    """Return the groups in a claim that is a string or a list of strings; a dotted path leads into
    objects, as `realm_access.roles`."""
    elsewhere = claims.get("_claim_names")
    if (isinstance(elsewhere, Mapping) and path in elsewhere) or claims.get("hasgroups"):
        raise OidcRefusedError(
            "You are in more groups than the provider puts into a token, so it is not known which. "
            "Let it send only groups that are assigned to this application.")
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def issuer(raw: str) -> str:
    """Return the issuer as it is written, because it is compared byte for byte; raise ValueError if
    it is not usable."""
    if not re.fullmatch(r"https://[^\s?#]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?[^\s?#]*",
                        raw):
        raise ValueError("the issuer's https URL is needed, exactly as the provider writes it")
    if "{" in raw:
        raise ValueError("one tenant is needed, not {tenantid}: else anybody of any could sign in")
    return raw


def validated_claims(claims: Claims, settings: OidcSettings, now: float) -> Claims:
    """Return the claims of an ID or logout token if they are for us and valid now; the caller has
    verified the signature. Raises OidcRefusedError."""
    if claims.get("iss") != settings.issuer:
        raise OidcRefusedError(f"The token was issued by {str(claims.get('iss'))[:200]!r}, and not "
                               f"by {settings.issuer}.")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience or []
    if settings.client_id not in audiences or (
            len(audiences) > 1 and claims.get("azp") != settings.client_id) or (
            claims.get("azp") not in (None, settings.client_id)):
        raise OidcRefusedError("The token is for another application.")
    if not claims.get("sub") and not claims.get("sid"):
        raise OidcRefusedError("The token has no subject.")
    _check_times(claims, now)
    return claims


def _check_times(claims: Claims, now: float) -> None:
    expires_at, issued_at = claims.get("exp"), claims.get("iat")
    if not isinstance(expires_at, int | float) or expires_at < now - LEEWAY_S:
        late = f" by {now - expires_at:.0f} s" if isinstance(expires_at, int | float) else ""
        raise OidcRefusedError(f"The token has expired{late}. If that is odd, compare the clocks "
                               "of the hub and of the provider.")
    if not isinstance(issued_at, int | float) or issued_at > now + LEEWAY_S:
        ahead = f" {issued_at - now:.0f} s ahead" if isinstance(issued_at, int | float) else ""
        raise OidcRefusedError(f"The token is not valid yet: the provider's clock is{ahead} of "
                               "the hub's. Set one of them right.")
