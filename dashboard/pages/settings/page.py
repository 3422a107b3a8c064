"""The Settings page: its sections, and who may open which."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from dash.development.base_component import Component
from msgspec import Meta

from gpudeck.client.hub import Client
from gpudeck.markup import make

from ..item_lists import Item, ViewContext
from ..parts import Page, problem
from ..reading import Parts, Reading, View
from . import addresses, archive, enrolment, nodes, receivers, sign_ins, teams, tokens, users, you

SectionKey = Literal["", "users", "tokens", "nodes", "addresses", "teams", "notices", "history",
                     "sign-ins", "you"]
EVERY_S, NODES_S = 5.0, 2.0
SLOW_S = 15.0  # thousands of nodes are many bytes


class Content(NamedTuple):
    """Content of a section: its most frequent action, and its lists."""

    button: Component
    lists: list[Any]
    every_s: float = EVERY_S


class SettingsView(View):
    """`section`: after the `#` in the address; "" and unknown ones: the first. `find`: part of a
    node's name, group or key. `enrolment`: the id of a command for new nodes while it is shown;
    `approvals`: what became of a list of fingerprints, as the browser had it from the hub, once."""

    UNADDRESSED: ClassVar[frozenset[str]] = frozenset({"section", "enrolment", "approvals"})
    section: SectionKey = ""
    find: str = ""
    enrolment: Annotated[str, Meta(max_length=64)] = ""
    approvals: Annotated[str, Meta(max_length=500_000)] = ""


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    name: str
    about: str
    read: Callable[[Client, ViewContext, SettingsView], Content]
    is_for_admins: bool = True

    def open_for(self, person: Item) -> bool:
        return not self.is_for_admins or person["role"] == "admin"


def read_users(client: Client, context: ViewContext, view: SettingsView) -> Content:
    sessions: dict[str, list[str]] = {}
    for session in client.hub.items("sessions"):
        sessions.setdefault(session["user"], []).append(session["id"])
    return Content(users.add_button(),
                   users.users_list(client.hub.items("users"), sessions, context))


def read_tokens(client: Client, context: ViewContext, view: SettingsView) -> Content:
    return Content(tokens.add_button(), tokens.tokens_list(client.hub.items("tokens"), context))


def read_addresses(client: Client, context: ViewContext, view: SettingsView) -> Content:
    return Content(addresses.add_button(), addresses.addresses_list(client.hub.items("addresses")))


def read_teams(client: Client, context: ViewContext, view: SettingsView) -> Content:
    return Content(teams.add_button(), teams.teams_list(client.hub.items("teams")))


def read_receivers(client: Client, context: ViewContext, view: SettingsView) -> Content:
    listed, waiting = client.hub.page("receivers"), client.hub.page("notices")
    rules = [rule["rule"]["id"] for rule in client.rules()]
    return Content(receivers.add_button(listed, rules),
                   receivers.receivers_list(listed, waiting, rules, context))


def read_archive(client: Client, context: ViewContext, view: SettingsView) -> Content:
    there = client.hub.get("archive")
    return Content(archive.archive_size(there), archive.archive_parts(there, context))


def read_sign_ins(client: Client, context: ViewContext, view: SettingsView) -> Content:
    attempts = client.hub.items("sign-ins") if context.is_admin else None
    return Content(sign_ins.everywhere_button(), sign_ins.sessions_list(
        client.hub.items("sessions"), attempts, context))


def read_you(client: Client, context: ViewContext, view: SettingsView) -> Content:
    return Content(you.password_button(context), you.account(context))


def read_nodes(client: Client, context: ViewContext, view: SettingsView) -> Content:
    listed = client.nodes()
    return Content(enrolment.connect_button(), nodes.nodes_lists(
        listed, client.hub.all("enrolments"), client.hub.get("hold"), view.find, context),
        SLOW_S if len(listed) > nodes.MOST_ROWS else NODES_S)


SECTIONS = (
    Section("users", "Users", "User accounts, their roles and visible nodes. A change signs the "
            "user out within a second.", read_users),
    Section("tokens", "Tokens", "For programs: scripts, notebooks, Prometheus. Each has a role, a "
            "scope and an expiry date.", read_tokens),
    Section("nodes", "Nodes", "Enrolled machines, each identified by its own key. A revoked node "
            "is disconnected within a second.", read_nodes),
    Section("addresses", "Addresses", "E-mail addresses of task owners, in addition to their "
            "terminals.", read_addresses),
    Section("teams", "Teams", "Owners who share a bill in reports: by Unix name, Unix group or "
            "pattern. Nobody is counted twice.", read_teams),
    Section("notices", "Notifications", "Receivers of alerts: webhooks, e-mail addresses and the "
            "owners of tasks.", read_receivers),
    Section("history", "History", "Archive of history in S3: whether files reach it, and how far "
            "it is behind.", read_archive),
    Section("sign-ins", "Sign-ins", "Where you are signed in. End sessions you do not recognize.",
            read_sign_ins, is_for_admins=False),
    Section("you", "You", "Your account on this hub.", read_you, is_for_admins=False),
)


def frame() -> Component:
    return make("div#settings.settings", [
        make("nav.settings-nav", [make("h1", "Settings"), make("ul#settings-links")],
             aria_label="Sections of the settings"),
        make("div.settings-body", [
            problem("settings"), make("p#settings-refused.settings-refused", "", role="status"),
            *(make(f"section#section-{section.key}.section", [], hidden=True,
                   aria_labelledby=f"section-{section.key}-title")
              for section in SECTIONS)])], data_unsettled="")


def answer(client: Client, view: SettingsView, now: float) -> Parts:
    context = ViewContext(client.me(), now, view.zone)
    if view.enrolment and context.is_admin:
        return enrolment.progress_parts(client, view.enrolment, now)
    section = section_named(view.section, context.person)
    is_open = section.open_for(context.person)
    content = section.read(client, context, view) if is_open else None
    approvals, view.approvals = view.approvals, ""
    dialog = {"@dialog": enrolment.approval_dialog(approvals)} if approvals else {}
    return page_parts(section, content, context.person) | dialog


def section_named(name: str, person: Item) -> Section:
    """Return the section of this name, or the first one that the person may open. Pure."""
    first = next(section for section in SECTIONS if section.open_for(person))
    return next((section for section in SECTIONS if section.key == name), first)


def page_parts(section: Section, content: Content | None, person: Item) -> Parts:
    """Return what is on the page while a section is chosen; its content is None where the person
    may not open it. Pure."""
    parts: Parts = {f"section-{other.key}": None for other in SECTIONS}
    parts["settings-links"] = links(section, person)
    parts["settings-refused"] = None if content is not None else (
        f"This section is for admins. You are signed in as {person['name']}, whose role is "
        f"{person['role']}.")
    if content is not None:
        parts[f"section-{section.key}"] = section_inside(section, content)
        parts["@every"] = content.every_s
    return parts


def links(section: Section, person: Item) -> list[Component]:
    return [make("li", make("a", other.name, href=f"#{other.key}", data_section=other.key,
                            aria_current=str(other is section).lower()))
            for other in SECTIONS if other.open_for(person)]


def section_inside(section: Section, content: Content) -> list[Component]:
    title = f"section-{section.key}-title"
    return [make("header", [make("div", [make(f"h2#{title}", section.name),
                                         make("p", section.about)]), content.button]),
            make("div.section-place", content.lists)]


PAGE = Page("settings", "Settings", "settings/settings.mjs", frame,
            "Users, API tokens, nodes and notifications.", (), "/settings",
            ("s", "the settings"),
            reading=Reading(SettingsView, answer, EVERY_S, anchor="section"))
