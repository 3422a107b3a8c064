"""API tokens in Settings: what programs show to come in."""

from collections.abc import Sequence

from dash.development.base_component import Component

from ..forms import choice, form_button, order, row_button, sure, text
from ..item_lists import Item, ItemList, ViewContext, group_words, name_cell
from .roles import SCOPE_BODY, role_field, scope_fields

VALID_FOR = (("1", "1 day"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days"),
             ("365", "1 year"))
SECRET = {
    "title": "Token “{name}”", "copy": "token", "what": "the token",
    "lead": ["Shown only once: the hub stores only its hash. Valid until {expires_at:moment}."],
    "after": ["Store it in a file that only your program can read. To try it:"],
    "code": 'curl -H "Authorization: Bearer $TOKEN" {origin}/api/v1/gpus'}


def tokens_list(tokens: Sequence[Item], context: ViewContext) -> list[Component]:
    return [ItemList(
        "API tokens", (
            ("Name", lambda token: name_cell(
                token["name"], "expired" if token["expires_at"] < context.now else None, ".lost")),
            ("Role", lambda token: token["role"]),
            ("Sees", lambda token: group_words(token["groups"])),
            ("Created", lambda token: [context.ago(token["created_at"]),
                                       f" by {token['created_by']}"]),
            ("Expires", lambda token: context.ago(token["expires_at"])),
            ("Last used", lambda token: context.ago(token["last_used_at"]))),
        lambda token: str(token["id"]),
        "No tokens yet. Scripts, notebooks and dashboards need one to use the hub's API.",
        lambda token: [row_button("Revoke", sure(
            f"Revoke {token['name']}?", "Revoke",
            "Programs using it lose access within a second. This cannot be undone.",
            order("DELETE", "tokens", token["id"])), f"Revoke {token['name']}")],
    ).draw(tokens)]


def add_button() -> Component:
    fields = [
        text("name", "Purpose", required="", maxlength="128", placeholder="grafana"),
        role_field("viewer"),
        choice("days", "Valid for", VALID_FOR, "90") | {"as": "days_from_now"}, *scope_fields()]
    return form_button("#add-token.button.first", "Create a token", {
        "title": "Create a token", "verb": "Create", "fields": fields, "shows": SECRET} | order(
            "POST", "tokens", body={"name": "$name", "role": "$role", **SCOPE_BODY,
                                    "expires_at": "$days"}))
