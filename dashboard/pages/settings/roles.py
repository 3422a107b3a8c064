"""Roles and scopes of people and tokens, as Settings asks for them."""

from collections.abc import Sequence

from ..forms import Choices, Field, choice, text

ROLES: Choices = (
    ("viewer", "viewer: read-only"),
    ("user", "user: can act on their own tasks"),
    ("operator", "operator: can act on everyone's tasks"),
    ("admin", "admin: also manages users, tokens and nodes"),
)
SCOPE_BODY = {"groups": "$groups", "unix_names": "$unix_names"}


def role_field(role: str) -> Field:
    return choice("role", "Role", ROLES, role)


def scope_fields(groups: Sequence[str] = ("*",), unix_names: Sequence[str] = ()) -> list[Field]:
    return [
        text("groups", "Node groups", ", ".join(groups), "Separated by commas; * means all. Other "
             "nodes are not visible.", as_="commas", required=""),
        text("unix_names", "Unix names", ", ".join(unix_names), "Tasks of these Unix users count "
             "as their own; separated by commas. Often none or one.", as_="commas")]
