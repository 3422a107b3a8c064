"""Who a provider says somebody is, and what that gives them here. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..policy import EVERYTHING, GROUP, RANKS, Role, name_flaw

MOST_GROUPS_SHOWN = 20
LEEWAY_S = 60.0
Claims = Mapping[str, Any]


class OidcRefusedError(Exception):
    """Sign-in refused. A person reads the message: it holds only what the provider said."""


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """What members of a group of the provider are here. `groups`: of nodes."""

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
    """`issuer` and `subject` together are somebody; names and addresses are given to others
    later."""

    issuer: str
    subject: str
    name: str
    role: Role
    groups: tuple[str, ...]
    sid: str | None
    auth_time: float | None


def grants(raw: str) -> tuple[GroupGrant, ...]:
    """`gpu-admins=admin, gpu-ops=operator:rack1+rack2, /staff=user`."""
    found = []
    for part in filter(None, (each.strip() for each in raw.split(","))):
        group, is_given, rest = part.rpartition("=")
        role, _, nodes = rest.partition(":")
        if not is_given or not group.strip() or role.strip() not in [*Role]:
            raise ValueError(f"{part!r} grants nothing; write for example gpu-admins=admin, "
                             f"staff=user:rack1+rack2 with roles {', '.join(Role)}")
        groups = tuple(nodes.split("+")) if nodes else (EVERYTHING,)
        if wrong := next((each for each in groups if not GROUP.fullmatch(each)), None):
            raise ValueError(f"{wrong!r} is not a group of nodes")
        found.append(GroupGrant(group.strip(), Role(role.strip()), groups))
    return tuple(found)


def identity(claims: Claims, settings: OidcSettings) -> Identity:
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or (wrong := name_flaw(name := name.strip().casefold())):
        raise OidcRefusedError(
            f"The provider gives no name that can be used here in its claim {settings.name_claim}"
            + (f": {wrong}" if isinstance(name, str) else "") + ".")
    of = groups_of(claims, settings.groups_claim)
    granted = _granted(of, settings.grants)
    if granted is None:
        shown = ", ".join(of[:MOST_GROUPS_SHOWN]) or "none"
        raise OidcRefusedError("None of your groups may sign in here. The provider sent these: "
                               f"{shown}. An admin maps them with the setting oidc_roles.")
    at, sid = claims.get("auth_time"), claims.get("sid")
    return Identity(str(claims["iss"]), str(claims["sub"]), name, *granted,
                    sid if isinstance(sid, str) else None,
                    float(at) if isinstance(at, int | float) else None)


def _granted(of: Iterable[str], known: Iterable[GroupGrant]) -> tuple[Role, tuple[str, ...]] | None:
    """The highest role; and the nodes for which that one is given, not those of lower ones."""
    mine, theirs = set(of), list(known)
    hits = [each for each in theirs if each.group in mine]
    if not hits:
        return None
    role = max((each.role for each in hits), key=RANKS.__getitem__)
    return role, tuple(dict.fromkeys(
        group for each in hits if each.role is role for group in each.groups))


def groups_of(claims: Claims, path: str) -> list[str]:
    """A string, or a list of them; a dotted path leads into objects, as `realm_access.roles`."""
    elsewhere = claims.get("_claim_names")
    if (isinstance(elsewhere, Mapping) and path in elsewhere) or claims.get("hasgroups"):
        raise OidcRefusedError(
            "You are in more groups than the provider puts into a token, so it is not known which. "
            "Let it send only groups that are assigned to this application.")
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return [found]
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def issuer(raw: str) -> str:
    """As it is written: it is compared byte for byte."""
    if not re.fullmatch(r"https://[^\s?#]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?[^\s?#]*",
                        raw):
        raise ValueError("the issuer's https URL is needed, exactly as the provider writes it")
    if "{" in raw:
        raise ValueError("one tenant is needed, not {tenantid}: else anybody of any could sign in")
    return raw


def checked(claims: Claims, settings: OidcSettings, now: float) -> Claims:
    """Those of an ID token or a logout token whose signature was right."""
    if claims.get("iss") != settings.issuer:
        raise OidcRefusedError(f"The token was issued by {str(claims.get('iss'))[:200]!r}, and not "
                               f"by {settings.issuer}.")
    audience = claims.get("aud")
    meant = [audience] if isinstance(audience, str) else audience or []
    if settings.client_id not in meant or (
            len(meant) > 1 and claims.get("azp") != settings.client_id) or (
            claims.get("azp") not in (None, settings.client_id)):
        raise OidcRefusedError("The token is for another application.")
    if not claims.get("sub") and not claims.get("sid"):
        raise OidcRefusedError("The token has no subject.")
    _check_times(claims, now)
    return claims


def _check_times(claims: Claims, now: float) -> None:
    ends, began = claims.get("exp"), claims.get("iat")
    if not isinstance(ends, int | float) or ends < now - LEEWAY_S:
        late = f" by {now - ends:.0f} s" if isinstance(ends, int | float) else ""
        raise OidcRefusedError(f"The token has expired{late}. If that is odd, compare the clocks "
                               "of the hub and of the provider.")
    if not isinstance(began, int | float) or began > now + LEEWAY_S:
        ahead = f" {began - now:.0f} s ahead" if isinstance(began, int | float) else ""
        raise OidcRefusedError(f"The token is not valid yet: the provider's clock is{ahead} of "
                               "the hub's. Set one of them right.")
