"""An act is carried out in a process that kills itself with SIGKILL before, or after, its Nth step:
nothing of it can be caught, and nothing is tidied up."""

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Step = tuple[Any, str]  # whose, and the name of its function


def killed_at_every_step(monkeypatch: pytest.MonkeyPatch, steps: list[Step],
                         act: Callable[[], Any], *, after: bool, at_least: int) -> Iterator[int]:
    """Yield the number of the step at which it died, each time that it did. It ends when the act
    does: there is no step left; that there were enough is checked."""
    number = 0
    while True:
        number += 1
        if not _dies(monkeypatch, steps, act, number, after):
            assert number > at_least, "else this kills nowhere in the middle"
            return
        yield number


def _dies(monkeypatch: pytest.MonkeyPatch, steps: list[Step], act: Callable[[], Any], number: int,
          after: bool) -> bool:
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        outcome: Any = "it raised"
        try:
            with monkeypatch.context() as patch:
                _arm(patch, steps, number, after)
                outcome = act()
        except BaseException as error:
            outcome = repr(error)
        finally:
            os.write(writes, pickle.dumps(outcome))
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        outcome = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert pickle.loads(outcome) == "done", pickle.loads(outcome)
    return False


def _arm(patch: pytest.MonkeyPatch, steps: list[Step], number: int, after: bool) -> None:
    count = 0

    def wrap(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            count += 1
            mine = count
            if mine == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            value = real(*arguments, **keywords)
            if mine == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        patch.setattr(owner, name, step)

    for owner, name in steps:
        wrap(owner, name)
