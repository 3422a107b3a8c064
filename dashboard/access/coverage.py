"""Check that the access table has a row for every request; otherwise the hub does not start."""

from importlib.metadata import entry_points
from typing import Any

from flask import Flask

from gpudeck.cli.main import GROUP

from .gate import guard_callbacks, verbs_in
from .policy import unlisted


def check_coverage(server: Flask, handlers: dict[str, dict[str, Any]], pages: Any) -> None:
    """Raise RuntimeError if a verb has no row. `handlers`: Socket.IO's, by namespace and event."""
    # Dash takes over what `dash.callback` declared at its first request; ours must not be one.
    pages._setup_server()
    callbacks = guard_callbacks(server, pages.callback_map)
    if unlisted_verbs := unlisted([*verbs(server, handlers), *callbacks]):
        raise RuntimeError(f"no row in dashboard/access/policy.py for {', '.join(unlisted_verbs)}")


def verbs(server: Flask, handlers: dict[str, dict[str, Any]]) -> set[str]:
    """Return every route, every Socket.IO event and every command, named as in the table."""
    events = {f"{namespace} {event}" for namespace, event_handlers in handlers.items()
              for event in event_handlers if event not in ("disconnect", "*")}
    commands = {f"gpudeck {entry.name}" for entry in entry_points(group=GROUP)
                if entry.value.startswith("gpudeck.")}
    return verbs_in(server.url_map) | events | commands
