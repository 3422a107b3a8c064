"""The agent below a kernel: what is said when it ends, with the kernel or alone."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from gpudeck.notebook_pipe import FromAgent, PipeSnapshot
from tests.demos import soon
from tests.fakes.children import is_alive
from widget import agent_source
from widget.agent_source import AgentSource


class Listened:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.words = ""
        self.source = AgentSource("profile=h100,gpus=1")
        self.source.add_listener(self.hear)
        self.thread = next(each for each in reversed(threading.enumerate())
                           if each.name == "gpudeck-source")
        assert soon(lambda: "ok" in self.states)
        assert self.source.pid is not None
        self.pid = self.source.pid

    def hear(self, message: FromAgent) -> None:
        if isinstance(message, PipeSnapshot):
            self.states.append(message.reader)
            self.words += message.detail


@pytest.fixture(name="listened")
def _listened() -> Iterator[Listened]:
    listened = Listened()
    yield listened
    listened.source.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_closing_kernel_ends_is_no_news(listened: Listened, number: signal.Signals) -> None:
    """ipykernel ends its children before it goes itself."""
    os.kill(listened.pid, number)
    assert soon(lambda: not is_alive(listened.pid))
    listened.source.close()
    listened.thread.join(10)
    assert not listened.thread.is_alive()
    assert "failed" not in listened.states


def test_one_that_dies_alone_is_told_of_and_started_again(
        listened: Listened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_source, "KERNEL_ENDS_WITHIN_S", 0.1)
    os.kill(listened.pid, signal.SIGKILL)
    assert soon(lambda: "failed" in listened.states)
    assert "it is started again" in listened.words
    assert soon(lambda: listened.states[-1] == "ok")
    assert listened.source.pid != listened.pid
