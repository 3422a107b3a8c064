"""The agent below a kernel: what the widget says when it ends, with the kernel or alone."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from gpudeck.contract.notebook_pipe import FromAgent, PipeSnapshot
from tests.demos import soon
from tests.fakes.children import is_alive
from widget import agent_source
from widget.agent_source import AgentSource


class Listener:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.words = ""
        self.source = AgentSource("profile=h100,gpus=1")
        self.source.add_listener(self.receive)
        self.thread = next(thread for thread in reversed(threading.enumerate())
                           if thread.name == "gpudeck-source")
        assert soon(lambda: "ok" in self.states)
        assert self.source.pid is not None
        self.pid = self.source.pid

    def receive(self, message: FromAgent) -> None:
        if isinstance(message, PipeSnapshot):
            self.states.append(message.reader)
            self.words += message.detail


@pytest.fixture(name="listener")
def _listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.source.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_closing_kernel_ends_is_no_news(listener: Listener, number: signal.Signals) -> None:
    """ipykernel ends its children before it goes itself."""
    os.kill(listener.pid, number)
    assert soon(lambda: not is_alive(listener.pid))
    listener.source.close()
    listener.thread.join(10)
    assert not listener.thread.is_alive()
    assert "failed" not in listener.states


def test_one_that_dies_alone_is_told_of_and_started_again(
        listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_source, "KERNEL_ENDS_WITHIN_S", 0.1)
    os.kill(listener.pid, signal.SIGKILL)
    assert soon(lambda: "failed" in listener.states)
    assert "it is started again" in listener.words
    assert soon(lambda: listener.states[-1] == "ok")
    assert listener.source.pid != listener.pid
