"""The live widget. What it shows comes on a thread of its own, and leaves through the kernel's
thread for output: a cell that runs holds up neither."""

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import anywidget
import msgspec
import traitlets

from gpudeck.action_table import IN_ROWS, TaskAction
from gpudeck.client import client_of
from gpudeck.notebook_pipe import FromAgent, PipeMarkReply, PipeSnapshot

from .agent_source import AgentSource, source_of
from .bundle import module, style
from .hub_source import HubSource, hub_source
from .machine_view import Item, RecentGpuHistory, picture
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
        """`acts`: where what the browser asks for goes, without waiting for its answer."""
        super().__init__()
        self._acts = acts
        self._leave = leave
        self._still = StaticOutput(lambda: still_of(self.picture))
        self.on_msg(self._asked)
        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 sends what a browser says to where the kernel spoke last, which is the
            # cell that runs. Ours may be heard on the subshell on which JupyterLab says it.
            self.comm._reply_subshell_for = lambda _, asked_on: asked_on

    def close(self) -> None:
        self._leave()
        self._still.close()
        super().close()

    def __repr__(self) -> str:
        return still_of(self.picture).text

    def _ipython_display_(self, **_: Any) -> None:
        """The widget, and under it a still: it is hidden while the widget lives, and is what stays
        in a saved notebook."""
        from IPython.display import display

        data, metadata = _bundle_of(self._repr_mimebundle_(), repr(self))
        display(data, raw=True, metadata=metadata)
        self._still.show()

    def show(self, shown: Item, cells: bytes = b"") -> None:
        """From any thread."""
        if self.comm is None:
            return
        self.cells = cells
        self.picture = shown
        self._still.news()

    def tell(self, message: FromAgent) -> None:
        said = _told(message)
        if said is not None and self.comm is not None:
            self.send(said)

    def _asked(self, _: Any, content: Mapping[str, Any], buffers: Any) -> None:
        """From the browser: all of it is somebody else's word."""
        ask_id = content.get("ask")
        if not isinstance(ask_id, str) or not 0 < len(ask_id) <= ASK_MAX:
            return
        if content.get("kind") == "look" and content.get("action") in IN_ROWS:
            self._acts.look(ask_id, cast(TaskAction, content["action"]), str(content.get("task")))
        elif content.get("kind") == "order":
            self._acts.order(ask_id, str(content.get("reason", ""))[:REASON_MAX])


def _bundle_of(made: Any, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    data, metadata = made if isinstance(made, tuple) else (made, {})
    return {**(data or {}), "text/plain": text}, metadata


def _told(message: FromAgent) -> Item | None:
    """What of it the browser reads: the tag of a message is its kind there."""
    if isinstance(message, PipeSnapshot | PipeMarkReply):
        return None
    said: Item = msgspec.to_builtins(message)
    return {"kind": said.pop("type"), "ask": said.pop("ask_id"), **said}


def watch_here(simulate: str | None) -> Watch:
    source = source_of(None if simulate is None else options_of(simulate))
    past, kernel_pid = RecentGpuHistory(), os.getpid()

    def hear(message: FromAgent) -> None:
        if isinstance(message, PipeSnapshot):
            past.see(message)
            made.show(picture(message, source.tasks, past, kernel_pid))
        else:
            made.tell(message)

    made = Watch(source, lambda: source.leave(hear))
    if source.seen is not None:
        hear(source.seen)
    source.listen(hear)
    return made


def watch_fleet(hub: str, token: str | None, ca_file: str | None) -> Watch:
    client, url = client_of(hub, token, ca_file)
    source = hub_source(client, url, token or "")
    leave: list[Callable[[], None]] = []
    made = Watch(source, lambda: [each() for each in leave].clear())
    leave.append(source.view(made.show, made.tell))
    if source.shown[0]:
        made.show(*source.shown)
    return made
