"""The Settings page: its sections and their words; the lists come by the API."""

from dataclasses import dataclass

from dash import html
from dash.development.base_component import Component

from .parts import marks


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """`act`: (id, words) of the one thing that is most often done there."""

    key: str
    name: str
    about: str
    act: tuple[str, str] | None = None
    is_harsh: bool = False


SECTIONS = (
    SettingsSection("users", "Users",
                    "Who may sign in, what they may do, and which nodes they see. "
                    "A change signs them out within a second.", ("add-user", "Add a user")),
    SettingsSection("tokens", "Tokens",
                    "For programs: scripts, notebooks, Prometheus. Each has a role and "
                    "a scope of its own, and an end.", ("add-token", "Make a token")),
    SettingsSection("nodes", "Nodes",
                    "The machines that belong here, each known by the key it made. "
                    "A revoked one is out within a second.", ("connect-node", "Connect a node")),
    SettingsSection("addresses", "Addresses",
                    "Where the owners of tasks are written to, beside their "
                    "terminals.", ("add-address", "Add an address")),
    SettingsSection("notices", "Notices",
                    "Who is told when a rule fires: chats and programs by a webhook, "
                    "people by mail, the owners of tasks.", ("add-receiver", "Add a receiver")),
    SettingsSection("sign-ins", "Sign-ins", "Where you are signed in. End what you do not know.",
                    ("end-all-sessions", "Sign out everywhere"), is_harsh=True),
    SettingsSection("you", "You", "Who you are to this hub.",
                    ("change-password", "Change your password")),
)


def settings_page() -> Component:
    return html.Div(
        id="settings",
        className="settings",
        hidden="hidden",
        children=[
            html.Nav(
                [html.H1("Settings"), html.Ul([html.Li(_link(section)) for section in SECTIONS])],
                className="settings-nav", **marks(aria_label="Sections of the settings")),
            html.Div(
                [html.P("", id="settings-refused", className="settings-refused", role="status"),
                 *[_section(section) for section in SECTIONS]],
                className="settings-body"),
        ],
    )


def _link(section: SettingsSection) -> Component:
    return html.A(section.name, href=f"#{section.key}", hidden="hidden",
                  **marks(data_section=section.key))


def _section(section: SettingsSection) -> Component:
    title = f"section-{section.key}-title"
    return html.Section(
        id=f"section-{section.key}",
        className="section",
        hidden="hidden",
        **marks(aria_labelledby=title),
        children=[
            html.Header([html.Div([html.H2(section.name, id=title), html.P(section.about)]),
                         _act(section)]),
            html.Div(className="section-place"),
        ],
    )


def _act(section: SettingsSection) -> Component | None:
    if section.act is None:
        return None
    ident, words = section.act
    return html.Button(words, id=ident, type="button",
                       className="button" if section.is_harsh else "button first")
