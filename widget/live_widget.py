"""The live widget. Its content comes on a separate thread, and leaves through the kernel's thread
for output: a running cell holds up neither."""

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import anywidget
import msgspec
import traitlets

from gpudeck.client.hub import client_of
from gpudeck.contract.action_table import IN_ROWS, TaskAction
from gpudeck.contract.notebook_pipe import FromAgent, PipeMarkReply, PipeSnapshot

from .agent_source import AgentSource, source_of
from .bundle import module, style
from .hub_source import HubSource, hub_source
from .machine_view import Item, RecentGpuHistory, picture
from .pictures import FleetPicture, MachinePicture
from .simulate import options_of
from .static_output import StaticOutput
from .static_table import still_of

ASK_MAX, REASON_MAX = 64, 1_024


class Watch(anywidget.AnyWidget):
    """The widget that `watch()` returns, shown at the end of a cell. `close()` ends it."""

    _esm = module()
    _css = style()
    picture = traitlets.Dict().tag(sync=True)
    cells = traitlets.Bytes(b"").tag(sync=True)  # of a fleet: two metrics of each GPU

    def __init__(self, acts: AgentSource | HubSource, leave: Callable[[], None]) -> None:
        """Connect to a source. `acts`: it gets the browser's requests, without waiting for their
        answers."""
        super().__init__()
        self._acts = acts
        self._leave = leave
        self._still = StaticOutput(lambda: still_of(self.picture))
        self.on_msg(self._on_message)
        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 sends a browser's message to where the kernel replied last, which is the
            # running cell. Ours may be handled on the subshell on which JupyterLab sends it.
            self.comm._reply_subshell_for = lambda _, asked_on: asked_on

    def close(self) -> None:
        self._leave()
        self._still.close()
        super().close()

    def __repr__(self) -> str:
        return still_of(self.picture).text

    def _ipython_display_(self, **_: Any) -> None:
        """Display the widget, and under it a still: it is hidden while the widget lives, and stays
        in a saved notebook."""
        from IPython.display import display

        data, metadata = _bundle_of(self._repr_mimebundle_(), repr(self))
        display(data, raw=True, metadata=metadata)
        self._still.show()

    def show(self, content: MachinePicture | FleetPicture, cells: bytes = b"") -> None:
        """Show a picture; called from any thread."""
        if self.comm is None:
            return
        self.cells = cells
        self.picture = dict(content)
        self._still.count_picture()

    def reply(self, message: FromAgent) -> None:
        reply = _browser_message(message)
        if reply is not None and self.comm is not None:
            self.send(reply)

    def _on_message(self, _: Any, content: Mapping[str, Any], buffers: Any) -> None:
        """Handle a message of the browser, none of which is trusted."""
        ask_id = content.get("ask")
        if not isinstance(ask_id, str) or not 0 < len(ask_id) <= ASK_MAX:
            return
        if content.get("kind") == "look" and content.get("action") in IN_ROWS:
            self._acts.preview(ask_id, cast(TaskAction, content["action"]),
                               str(content.get("task")))
        elif content.get("kind") == "order":
            self._acts.order(ask_id, str(content.get("reason", ""))[:REASON_MAX])


def _bundle_of(bundle: Any, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    return {**(data or {}), "text/plain": text}, metadata


def _browser_message(message: FromAgent) -> Item | None:
    """Convert a message for the browser, where its tag is its kind; None: it is not for the
    browser."""
    if isinstance(message, PipeSnapshot | PipeMarkReply):
        return None
    fields: Item = msgspec.to_builtins(message)
    return {"kind": fields.pop("type"), "ask": fields.pop("ask_id"), **fields}


def watch_here(simulate: str | None) -> Watch:
    source = source_of(None if simulate is None else options_of(simulate))
    past, kernel_pid = RecentGpuHistory(), os.getpid()

    def receive(message: FromAgent) -> None:
        if isinstance(message, PipeSnapshot):
            past.add(message)
            watch.show(picture(message, source.tasks, past, kernel_pid))
        else:
            watch.reply(message)

    watch = Watch(source, lambda: source.remove_listener(receive))
    if source.snapshot is not None:
        receive(source.snapshot)
    source.add_listener(receive)
    return watch


def watch_fleet(hub: str, token: str | None, ca_file: str | None) -> Watch:
    client, url = client_of(hub, token, ca_file)
    source = hub_source(client, url, token or "")
    leave: list[Callable[[], None]] = []
    watch = Watch(source, lambda: [remove() for remove in leave].clear())
    leave.append(source.view(watch.show, watch.reply))
    content, cells = source.state
    if content is not None:
        watch.show(content, cells)
    return watch
