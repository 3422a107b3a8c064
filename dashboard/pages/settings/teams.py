"""Teams in Settings, whose owners share a bill in reports."""

from collections.abc import Sequence

from dash.development.base_component import Component

from ..forms import Field, form_button, order, row_button, sure, text
from ..item_lists import Item, ItemList
from ..parts import literal

LISTS = (("users", "Unix names", "ann bob"), ("groups", "Unix groups", "vision"),
         ("patterns", "Patterns", "lab3-*"))
ORDER = "Names decide before groups, and groups before patterns."
BODY = {key: f"${key}" for key, *_ in LISTS} | {"price_gpu_hour": "$price"}


def teams_list(teams: Sequence[Item]) -> list[Component]:
    return [ItemList(
        "Teams", (
            ("Team", lambda team: team["name"]),
            ("Owners by", lambda team: ", ".join(
                word for key, *_ in LISTS for word in team.get(key, ())) or "nobody"),
            ("Price per GPU-hour", lambda team: price_words(team) or "that of the report")),
        lambda team: str(team["name"]),
        "No teams yet. Reports by team show every owner without one.", _actions,
    ).draw(teams)]


def price_words(team: Item) -> str:
    """Format a team's own price as a person types it; "": it has none."""
    price = team.get("price_gpu_hour")
    return "" if price is None else f"{price:.12g}"


def add_button() -> Component:
    fields = [text("name", "Name", required="", maxlength="64"), *_fields({})]
    return form_button("#add-team.button.first", "Add a team", {
        "title": "Add a team", "verb": "Save", "fields": fields} | order(
            "POST", "teams", body=BODY | {"name": "$name"}))


def _actions(team: Item) -> list[Component]:
    name = team["name"]
    return [
        row_button("Edit", {"title": f"Team {name}", "verb": "Save", "fields": _fields(team)}
                   | order("POST", "teams", body=BODY | {"name": literal(name)}),
                   f"Edit the team {name}"),
        row_button("Remove", sure(
            f"Remove the team {name}", "Remove", "Its owners then belong to no team, in past "
            "reports too.", order("DELETE", "teams", name)), f"Remove the team {name}")]


def _fields(team: Item) -> list[Field]:
    return [
        *(text(key, label, " ".join(team.get(key, ())), ORDER if key == "patterns" else None,
               as_="words", maxlength="4000", placeholder=example)
          for key, label, example in LISTS),
        text("price", "Price per GPU-hour", price_words(team), "Empty: the price set in the "
             "report.", type="number", min="0")]
