"""E-mail addresses of task owners in Settings."""

from collections.abc import Sequence

from dash.development.base_component import Component

from ..forms import Field, form_button, order, row_button, sure, text
from ..item_lists import Item, ItemList
from ..parts import literal

BODY = {"address": "$address"}


def addresses_list(addresses: Sequence[Item]) -> list[Component]:
    return [ItemList(
        "Addresses", (("Unix name", lambda one: one["unix_name"]),
                      ("Address", lambda one: one["address"])),
        lambda one: str(one["unix_name"]),
        "No addresses yet. Owners are only notified on their terminals.", _actions,
    ).draw(addresses)]


def add_button() -> Component:
    name = text("unix_name", "Unix name", hint="The user name their tasks run under.", required="",
                maxlength="128")
    return form_button("#add-address.button.first", "Add an address", {
        "title": "Add an address", "verb": "Save", "fields": [name, _field("")]} | order(
            "POST", "addresses", body=BODY | {"unix_name": "$unix_name"}))


def _actions(one: Item) -> list[Component]:
    name = one["unix_name"]
    return [
        row_button("Edit", {
            "title": f"Address of {name}", "verb": "Save", "fields": [_field(one["address"])]}
            | order("POST", "addresses", body=BODY | {"unix_name": literal(name)}),
            f"Edit the address of {name}"),
        row_button("Remove", sure(
            f"Remove the address of {name}", "Remove", "They will only be notified on their "
            "terminals.", order("DELETE", "addresses", name)), f"Remove the address of {name}")]


def _field(address: str) -> Field:
    return text("address", "Address", address, "An e-mail address.", required="", maxlength="256")
