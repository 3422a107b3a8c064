"""Nothing can be asked of a hub that the access table has no row for: else it does not start."""

from importlib.metadata import entry_points
from typing import Any

from flask import Flask

from gpudeck.cli import GROUP

from .gate import guard_callbacks, verbs_in
from .policy import unlisted


def check_coverage(server: Flask, handlers: dict[str, dict[str, Any]], pages: Any) -> None:
    """`handlers`: of Socket.IO, by namespace and event."""
    # Dash takes over what `dash.callback` declared at its first request; ours must not be one.
    pages._setup_server()
    callbacks = guard_callbacks(server, pages.callback_map)
    if without := unlisted([*verbs(server, handlers), *callbacks]):
        raise RuntimeError(f"no row in dashboard/access/policy.py for {', '.join(without)}")


def verbs(server: Flask, handlers: dict[str, dict[str, Any]]) -> set[str]:
    """Every route, every Socket.IO event and every command."""
    events = {f"{namespace} {event}" for namespace, named in handlers.items()
              for event in named if event not in ("disconnect", "*")}
    commands = {f"gpudeck {entry.name}" for entry in entry_points(group=GROUP)
                if entry.value.startswith("gpudeck.")}
    return verbs_in(server.url_map) | events | commands
