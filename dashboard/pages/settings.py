"""The Settings page: its sections and their words; the lists come by the API."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page

HARSH = "end-all-sessions"
# Key, name, description, and the id and the label of the most frequent action.
SECTIONS = (
    ("users", "Users", "User accounts, their roles and visible nodes. A change signs the user out "
     "within a second.", "add-user", "Add a user"),
    ("tokens", "Tokens", "For programs: scripts, notebooks, Prometheus. Each has a role, a "
     "scope and an expiry date.", "add-token", "Create a token"),
    ("nodes", "Nodes", "Enrolled machines, each identified by its own key. A revoked node is "
     "disconnected within a second.", "connect-node", "Connect a node"),
    ("addresses", "Addresses", "E-mail addresses of task owners, in addition to their terminals.",
     "add-address", "Add an address"),
    ("teams", "Teams", "Owners who share a bill in reports: by Unix name, Unix group or pattern. "
     "Nobody is counted twice.", "add-team", "Add a team"),
    ("notices", "Notifications", "Receivers of alerts: webhooks, e-mail addresses and "
     "the owners of tasks.", "add-receiver", "Add a receiver"),
    ("sign-ins", "Sign-ins", "Where you are signed in. End sessions you do not recognize.",
     HARSH, "Sign out everywhere"),
    ("you", "You", "Your account on this hub.", "change-password", "Change your password"),
)


def frame() -> Component:
    links = [make("li", make("a", name, href=f"#{key}", hidden=True, data_section=key))
             for key, name, *_ in SECTIONS]
    return make("div#settings.settings", [
        make("nav.settings-nav", [make("h1", "Settings"), make("ul", links)],
             aria_label="Sections of the settings"),
        make("div.settings-body", [
            make("p#settings-refused.settings-refused", "", role="status"),
            *(_section(*row) for row in SECTIONS)])], hidden=True, data_unsettled="")


def _section(key: str, name: str, about: str, act: str, words: str) -> Component:
    title = f"section-{key}-title"
    return make(f"section#section-{key}.section", [
        make("header", [make("div", [make(f"h2#{title}", name), make("p", about)]),
                        make(f"button#{act}.button{'' if act == HARSH else '.first'}", words)]),
        make("div.section-place")], hidden=True, aria_labelledby=title)


PAGE = Page("settings", "Settings", "settings/settings.mjs", frame,
            "Users, API tokens, nodes and notifications.", (), "/settings",
            ("s", "the settings"))
