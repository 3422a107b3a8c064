"""`claim()` in a notebook: waits for GPUs of this machine, and holds them as long as the kernel
lives."""

import os
import threading
from collections.abc import Mapping
from html import escape
from typing import Any

import anywidget
import traitlets

from gpudeck.contract.pool_messages import (
    AskClaim,
    ClaimRefused,
    ClaimWaits,
    Extend,
    GiveBack,
    Leased,
    LeaseEnded,
    LeaseNotice,
)
from gpudeck.errors import CommandError
from gpudeck.language.times import parse_span
from gpudeck.pool.boards import boards_seen
from gpudeck.pool.claim import (
    TOO_LATE,
    bind,
    give_back_later,
    is_cuda_initialised,
    put_back,
    set_environment,
)
from gpudeck.pool.connection import PoolConnection, wait_for
from gpudeck.pool.core.host_resources import only_counted
from gpudeck.pool.environment import environment

from .bundle import claim_module, style
from .pictures import LeasedGpuPicture, LeaseOfKernelPicture

WAITING = "Waiting for GPUs"
IN_USE = ("CUDA is open in this kernel and keeps the memory of its GPUs: restart the kernel, which "
          "gives them back")

GIVEN_BACK_LATER = ("Given back: the agent is told as soon as it answers again, while this kernel "
                    "lives")


class ClaimWidget(anywidget.AnyWidget):
    """The lease that `claim()` returns. It shows the wait, then what it holds."""

    _esm = claim_module()
    _css = style()
    picture = traitlets.Dict().tag(sync=True)

    def __init__(self, request: AskClaim) -> None:
        """Block the cell until the GPUs are leased: the next cell may use them. Raises
        CommandError."""
        if is_cuda_initialised():
            raise RuntimeError(TOO_LATE)
        super().__init__(picture=LeaseOfKernelPicture(
            state="waiting", words="", note="", gpus=[], until=0.0))
        self._pool = PoolConnection(os.environ)
        self._has_agent = True
        self._before: dict[str, str | None] = {}
        self.on_msg(self._on_message)
        self._handle: Any = None
        self._print(WAITING)
        try:
            self.lease = wait_for(self._pool, request, self._waits)
            bind(self._pool, self.lease)
        except BaseException as why:  # an interrupted cell leaves the queue, too
            self._pool.close()
            self._print(f"No GPUs held: {why or 'it has left the queue'}")
            raise
        change = environment(self.lease, "auto", boards_seen())
        self._before, self.env = set_environment(change), dict(change.set)
        self._leased(self.lease)
        self._print(repr(self))  # this stays in a saved notebook
        self._display()
        threading.Thread(target=self._listen, daemon=True).start()

    def extend(self, span: str = "1h") -> None:
        self._pool.send(Extend(self.lease.lease_id, parse_span(span)))

    def give_back(self) -> None:
        if is_cuda_initialised():
            self._show(note=IN_USE)
            return
        put_back(self._before)
        if self._has_agent:
            try:
                self._pool.send(GiveBack(self.lease.lease_id))
                return
            except CommandError:
                pass  # the agent has just ended
        give_back_later(self.lease.lease_id)
        self._show(state="ended", words="", gpus=[], note=GIVEN_BACK_LATER)

    def __repr__(self) -> str:
        gpus = ", ".join(f"GPU {gpu['index']} {gpu['name']}" for gpu in self.picture["gpus"])
        return f"gpudeck: {self.picture['state']} {gpus} {self.picture['words']}".strip()

    def _print(self, text: str) -> None:
        """Print in the running cell, where every notebook draws text, and keeps it when it is
        saved."""
        from IPython.display import DisplayHandle

        data = {"text/plain": text, "text/html": f"<p>{escape(text)}</p>"}
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)

    def _display(self) -> None:
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        display({**(data or {}), "text/plain": repr(self)}, raw=True, metadata=metadata)

    def _ipython_display_(self, **_: Any) -> None:
        """Display nothing: the widget is shown already."""

    def _show(self, **changed: Any) -> None:
        self.picture = {**self.picture, **changed}

    def _waits(self, waits: ClaimWaits) -> None:
        likely = "" if waits.estimate is None else f"; {waits.estimate.words}"
        self._print(f"{WAITING}, number {waits.place} in the queue: {waits.why}{likely}")

    def _leased(self, lease: Leased) -> None:
        self._show(state="held", words=f"lease {lease.lease_id} on {lease.host}",
                   note=only_counted(lease), until=lease.until, gpus=[
                       LeasedGpuPicture(index=gpu.index, name=gpu.name, uuid=gpu.uuid)
                       for gpu in lease.gpus])

    def _on_message(self, _: Any, content: Mapping[str, Any], buffers: Any) -> None:
        """Handle a message of the browser, which is not trusted."""
        act = {"extend": self.extend, "give_back": self.give_back}.get(str(content.get("act")))
        if act is not None and self.picture["state"] == "held":
            try:
                act()
            except CommandError as why:
                self._show(note=str(why))

    def _listen(self) -> None:
        while self.picture["state"] == "held":
            try:
                self._receive(self._pool.receive())
            except CommandError:
                # The lease is the kernel's, with or without an agent that answers.
                self._has_agent = False
                self._show(note="The agent has gone; the GPUs are kept while this kernel lives.")
                break
        self._pool.close()

    def _receive(self, message: object) -> None:
        match message:
            case Leased() as lease:
                self._leased(lease)
            case LeaseNotice(text, end):
                self._show(note=text)
                if end is not None and end != "no":
                    self.give_back()
            case ClaimRefused(why):
                self._show(note=why)
            case LeaseEnded(why):
                self._show(state="ended", words="", gpus=[], note=why)
