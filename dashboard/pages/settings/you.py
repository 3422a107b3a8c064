"""The viewer's account in Settings."""

from dash.development.base_component import Component

from gpudeck.markup import make

from ..forms import form_button, new_password, order
from ..item_lists import ViewContext, group_words
from .roles import ROLES


def account(context: ViewContext) -> list[Component]:
    """Return who the viewer is, and the place of a switch that belongs to the browser, not to the
    account: it may be somebody's phone."""
    person = context.person
    names = ", ".join(person["unix_names"])
    facts = (
        ("Name", person["name"]), ("Role", dict(ROLES).get(person["role"], person["role"])),
        ("You see", group_words(person["groups"])),
        ("Your tasks", f"those of {names}" if names else
         "none: your account has no Unix name; an admin can add one"))
    return [
        make("dl.who", [make("div", [make("dt", label), make("dd", words)])
                        for label, words in facts]),
        make("p.desktop-alerts", [
            make("label", [make("input#desktop-alerts", type="checkbox", disabled=True,
                                aria_describedby="desktop-alerts-words"),
                           "Show critical alerts as desktop notifications"]),
            make("small#desktop-alerts-words", "", role="status")])]


def password_button(context: ViewContext) -> Component:
    name = context.person["name"]
    return form_button("#change-password.button.first", "Change your password", {
        "title": "Change your password", "verb": "Save", "fields": [new_password(name)],
        "lead": "You will be signed out everywhere and can sign in with the new password.",
        "then": "/sign-in"} | order("PATCH", "users", name, body={"password": "$password"}))
