"""`gpudeck agent` that is killed right before or after a kind of entry in its action journal."""

import os
import signal
import sys
from typing import Any

from agent.cli.main import agent
from agent.journal.store import ActionJournal


def crash_at(when: str, entry: str) -> None:
    real = getattr(ActionJournal, entry)

    def crashing(self: ActionJournal, *arguments: Any, **keywords: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(self, *arguments, **keywords)
        if when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(ActionJournal, entry, crashing)


if __name__ == "__main__":
    crash_at(*sys.argv[1:3])
    sys.exit(agent(sys.argv[3:]))
