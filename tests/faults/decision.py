"""Time that the agent takes from its first pidfd to its first signal."""

import re
import secrets
import time
from pathlib import Path

from agent.actions.execute import ActionExecutor, never_recalled
from agent.actions.kinds.execution import ActionTimeouts
from agent.actions.preview import preview
from agent.journal.store import ActionJournal, ActionStore
from gpudeck.contract.actions import YOUNGEST_S, ActionParams, Command, CommandActor, Reply
from gpudeck.contract.wire import Look
from tests.fakes.children import Children, a_ceiling
from tests.fakes.contexts import a_context


def decided_ms(folder: Path, ends: int) -> list[float]:
    """Milliseconds from the first pidfd to the first signal, as the agent reports with SIGTERM."""
    children, steps = Children(), list[str]()
    journal = ActionJournal(ActionStore(folder / "acts.db"))
    folder.chmod(0o700)
    context = a_context(children, journal, a_ceiling(folder))
    try:
        victims = [children.start() for _ in range(ends)]
        time.sleep(YOUNGEST_S)
        for victim in victims:
            draft = preview(context,
                            Look("ask", secrets.token_bytes(32), "end", ActionParams(),
                                 victim.task_id))
            now = time.time()
            command = Command(secrets.token_hex(16), "node", 1, now, now + 25, draft.nonce, "end",
                              CommandActor("person", "test"), "because of a test", draft)
            first = Reply(command.command_id, 1, "accepted", now)
            ActionExecutor(context, journal, lambda reply: steps.append(reply.step),
                           ActionTimeouts(), never_recalled).act(
                command, journal.record_first(command, "digest", first))
    finally:
        children.close()
    delays_ms = re.findall(r"([\d.]+) ms after taking hold", " ".join(steps))
    assert len(delays_ms) == ends, steps
    return [float(ms) for ms in delays_ms]
