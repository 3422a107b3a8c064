"""A hub as the widget's source: a thread that is not a cell's queries it every other second. One
for all widgets of a hub and token."""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpudeck.client.hub import Client, NotThere
from gpudeck.contract import notebook_pipe as pipe
from gpudeck.contract.action_table import TaskAction
from gpudeck.contract.action_views import PreviewView
from gpudeck.contract.actions import FINAL
from gpudeck.errors import CommandError, ExitCode

from .fleet_view import METRICS, OwnWork, cells_of, fleet_picture, ordered, trouble
from .pictures import FleetPicture

EVERY_S = 2.0
OWN_EVERY_S = 6.0
DONE_WITHIN_S = 3 * 86_400.0  # as the My work page
REST = 10.0  # times as long as a query took: a large fleet is queried less often
FOLLOW_EVERY_S = 0.5
FOLLOW_FOR_S = 900.0
SILENT_FOR_S = 60.0  # a hub may restart meanwhile: its answer afterwards counts
PREVIEWS_MAX = 64

Item = dict[str, Any]
FleetListener = Callable[[FleetPicture, bytes], None]


class HubSource:
    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._viewers: list[tuple[FleetListener, Callable[[pipe.FromAgent], None]]] = []
        self._previews: OrderedDict[str, PreviewView] = OrderedDict()
        self._acts = ThreadPoolExecutor(4, "gpudeck-acts")
        self._closed = threading.Event()
        self._me: Item | None = None
        self._own = OwnWork()
        self._own_at = float("-inf")
        self.state: tuple[FleetPicture | None, bytes] = None, b""
        threading.Thread(target=self._run, name="gpudeck-hub", daemon=True).start()

    def view(self, picture: FleetListener, reply: Callable[[pipe.FromAgent], None]
             ) -> Callable[[], None]:
        """Add a viewer; return a function that removes it."""
        viewer = picture, reply
        self._viewers.append(viewer)
        return lambda: self._viewers.remove(viewer) if viewer in self._viewers else None

    def close(self) -> None:
        self._closed.set()
        self._acts.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                state = self._read_fleet()
            except CommandError as why:
                state = trouble(self.state[0], self._url, time.time(), str(why)), self.state[1]
            self.state = state
            took_s = time.monotonic() - began
            for picture, _ in tuple(self._viewers):
                picture(*state)
            self._closed.wait(max(EVERY_S - took_s, REST * took_s))

    def _read_fleet(self) -> tuple[FleetPicture, bytes]:
        if self._me is None:
            self._me = self._client.me()
        began = time.monotonic()
        gpus = ordered(self._client.gpus(metrics=",".join(METRICS)))
        names = self._me.get("unix_names") or []
        tasks = [task for name in names for task in self._client.tasks(f"user:{name}")
                 if task["user"] == name]
        self._read_own(names, self._me["name"])
        every_s = max(EVERY_S, REST * (time.monotonic() - began))
        why = "" if names else ("This token names no Unix user, so no task counts as yours; "
                                "an admin can make one with --unix-name.")
        return (fleet_picture(gpus, tasks, self._url, time.time(), why, every_s, self._own),
                cells_of(gpus))

    def _read_own(self, names: Sequence[str], me: str) -> None:
        now = time.monotonic()
        if not names or now - self._own_at < OWN_EVERY_S:
            return
        self._own_at, client, commands = now, self._client, self._own.done
        since = f"{time.time() - DONE_WITHIN_S:.0f}"
        with contextlib.suppress(CommandError):  # older hubs do not know `owner`
            commands = [command for name in names
                        for command in client.commands(owner=name, since=since)
                        if command.by.name != me]
        self._own = OwnWork(
            names, _if_known(lambda: [quota for name in names for quota in client.quotas_of(name)]),
            commands, _if_known(client.leases), _if_known(client.claims))

    # -- actions

    def preview(self, ask_id: str, action: TaskAction, task_id: str) -> None:
        self._later(ask_id, lambda: self._preview(ask_id, action, task_id))

    def order(self, ask_id: str, reason: str) -> None:
        self._later(ask_id, lambda: self._order(ask_id, reason))

    def _later(self, ask_id: str, act: Callable[[], None]) -> None:
        def run() -> None:
            try:
                act()
            except CommandError as why:
                self._send(pipe.PipeFailure(ask_id, str(why)))

        self._acts.submit(run)

    def _preview(self, ask_id: str, action: TaskAction, task_id: str) -> None:
        preview = self._client.preview(action, [task_id], {})
        self._previews[ask_id] = preview
        while len(self._previews) > PREVIEWS_MAX:
            self._previews.popitem(last=False)
        self._send(pipe.PipePreviewReply(ask_id, preview))

    def _order(self, ask_id: str, reason: str) -> None:
        preview = self._previews.pop(ask_id, None)
        if preview is None:
            raise CommandError("this was not previewed, or the preview was used already; preview "
                               "again")
        if not reason.strip():
            raise CommandError("give a reason: it goes into the audit log")
        receipt = self._client.order(preview.id, reason)
        if receipt.plan is not None:
            raise CommandError("it waits for a second person, who approves it on the Tasks page")
        self._send(pipe.PipeOrderReply(ask_id, receipt.items))
        self._follow(ask_id, [command.id for command in receipt.items])

    def _follow(self, ask_id: str, ids: list[str]) -> None:
        answered_mono = time.monotonic()
        deadline = answered_mono + FOLLOW_FOR_S
        while ids and time.monotonic() < deadline and not self._closed.is_set():
            try:
                commands = [self._client.command(command_id) for command_id in ids]
            except CommandError as why:
                if (why.code != ExitCode.UNREACHABLE
                        or time.monotonic() - answered_mono > SILENT_FOR_S):
                    raise CommandError(f"{why}; the action continues, but its outcome is not known "
                                       "here") from why
                commands = []
            else:
                answered_mono = time.monotonic()
            for command in commands:
                self._send(pipe.PipeCommandUpdate(ask_id, command))
                if command.state in FINAL:
                    ids.remove(command.id)
            self._closed.wait(FOLLOW_EVERY_S)

    def _send(self, message: pipe.FromAgent) -> None:
        for _, reply in tuple(self._viewers):
            reply(message)


def _if_known(ask: Callable[[], list[Item]]) -> list[Item]:
    """Return the answer; empty where an older hub does not know the request."""
    try:
        return ask()
    except NotThere:
        return []


_sources: dict[tuple[str, str], HubSource] = {}


def hub_source(client: Client, url: str, token: str) -> HubSource:
    if (url, token) not in _sources:
        _sources[url, token] = HubSource(client, url)
    return _sources[url, token]
