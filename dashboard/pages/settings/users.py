"""Users in Settings: who may sign in."""

from collections.abc import Mapping, Sequence
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..element_tree import trees
from ..forms import Form, form_button, new_password, order, row_button, sure, text
from ..item_lists import Item, ItemList, ViewContext, group_words, name_cell
from ..parts import literal
from ..words import NONE
from .roles import SCOPE_BODY, role_field, scope_fields

LINK = {
    "title": "A link for {name}", "copy": "link", "what": "the link",
    "lead": ["Send this to {name} over a private channel. It works once and expires after ten "
             "minutes."]}
NAME = {"required": "", "pattern": r"[a-z0-9][a-z0-9._@+\-]*", "maxlength": "64"}


def users_list(users: Sequence[Item], sessions: Mapping[str, Sequence[str]], context: ViewContext
               ) -> list[Component]:
    """Return the list of users. `sessions`: ids of the sessions of each user."""
    own = context.person["name"]
    return [ItemList(
        "Users", (
            ("Name", lambda user: name_cell(user["name"], "you" if user["name"] == own else None)),
            ("Role", lambda user: user["role"]),
            ("Sees", lambda user: group_words(user["groups"])),
            ("Unix names", lambda user: ", ".join(user["unix_names"]) or NONE),
            ("Signed in", lambda user: context.ago(user["last_sign_in_at"])),
            ("Password", lambda user: "set" if user["has_password"] else "not set yet")),
        lambda user: str(user["name"]), "No users yet, except those signed in by a link.",
        lambda user: _actions(user, sessions.get(user["name"], ()), user["name"] == own),
    ).draw(users)]


def add_button() -> Component:
    fields = [
        text("name", "Name", hint="Sign-in name: a-z, 0-9 and . _ @ + -", **NAME),
        role_field("viewer"), *scope_fields(),
        text("password", "Password", hint="Leave empty to create a link with which they choose one "
             "themselves.", type="password", autocomplete="new-password", minlength="12")]
    return form_button("#add-user.button.first", "Add a user", {
        "title": "Add a user", "verb": "Add", "fields": fields, "shows": LINK,
        "done": "{name} can sign in."} | order("POST", "users", body={
            "name": "$name", "role": "$role", **SCOPE_BODY, "password": "$password"}))


def _actions(user: Item, sessions: Sequence[str], is_self: bool) -> list[Component]:
    name = user["name"]
    edit = row_button("Edit", _edit(user), f"Edit {name}")
    return [edit] if is_self else [
        edit, row_button("Password", _password(name), f"Set the password of {name}"),
        row_button("Sign out", {
            "sends": [order("DELETE", "sessions", session) for session in sessions],
            "done": f"{name} is signed out everywhere."}, f"Sign out everywhere {name}"),
        row_button("Remove", sure(
            f"Remove {name}?", "Remove", f"{name} is signed out within a second and cannot come "
            "back. This cannot be undone; tokens they created stay valid.",
            order("DELETE", "users", name)), f"Remove {name}")]


def _edit(user: Item) -> Form:
    before: dict[str, Any] = {key: user[key] for key in ("role", "groups", "unix_names")}
    return {
        "title": f"Edit {user['name']}", "verb": "Save",
        "lead": "They are signed out; the change applies at the next sign-in.",
        "fields": [role_field(user["role"]), *scope_fields(user["groups"], user["unix_names"])],
        "done": "{name} is now {role}.",
        "undo": order("PATCH", "users", user["name"], body=literal(before))} | order(
            "PATCH", "users", user["name"], body={"role": "$role", **SCOPE_BODY})


def _password(name: str) -> Form:
    link = form_button(".as-link", "create a link with which they choose one themselves",
                       _new_link(name))
    return {
        "title": f"Password of {name}", "verb": "Save", "fields": [new_password(name)],
        "lead": trees(make("p", ["They are signed out everywhere. Set a password here and pass it "
                                 "on, or ", link, "."])),
        } | order("PATCH", "users", name, body={"password": "$password"})


def _new_link(name: str) -> Form:
    return sure(f"A link for {name}", "Create link",
                f"The current password of {name} becomes invalid and they are signed out. The "
                "first person to open the link chooses the new one.",
                order("POST", "users", name, "link", shows=LINK))
