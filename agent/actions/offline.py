"""Acts that this node decides by itself while it has no hub, by the same preview, guard, journal.

They carry epoch 0, which no hub has, and are recorded in this node's own Audit.
"""

import time
from dataclasses import dataclass

from gpudeck.action_table import ON_RUNG
from gpudeck.actions import ActionParams, CommandActor, Refusal, RefusalCode, Reply
from gpudeck.ladder import Do, OutcomeKind

from ..journal.store import ActionJournal, JournalError
from ..runtime.action_lock import ActionLock
from .context import NodeContext
from .execute import ActionExecutor, never_recalled, own_command, own_look
from .kinds.execution import ActionTimeouts
from .preview import preview
from .replies import first_reply

# In a while it may be different; all else stays as it is.
PASSING: frozenset[RefusalCode] = frozenset((
    "hold", "busy", "budget", "young", "unreadable", "journal", "stale_preview"))
LOCK_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class OfflineExecutor:
    """Blocks until there is an outcome; on a thread of its own."""

    context: NodeContext
    journal: ActionJournal
    lock: ActionLock

    def do(self, do: Do, task_id: str, who: str, reason: str) -> tuple[OutcomeKind, str]:
        params = ActionParams(text=reason) if do == "tell" else ActionParams()
        shown = preview(self.context, own_look(ON_RUNG[do], params, task_id))
        if shown.refusals:
            return _kind(shown.refusals[0]), shown.refusals[0].sentence
        command = own_command(self.context.node.node_id, shown,
                              CommandActor("rule", who[:128]), reason)
        try:
            accepted = self.journal.seen(command, command.command_id,
                                         first_reply(command, "accepted"))
        except JournalError as why:
            return "put_off", str(why)
        if not self.lock.take(LOCK_WITHIN_S):
            self.journal.result(Reply(
                accepted.command_id, accepted.number + 1, "expired", time.time(),
                "another act was in flight on this node; nothing was touched"), {})
            return "put_off", "another act was in flight on this node"
        try:
            reply = ActionExecutor(self.context, self.journal, lambda reply: None,
                                   ActionTimeouts(), never_recalled).act(command, accepted)
        finally:
            self.lock.free()
        return _outcome(do, reply)


def _kind(refusal: Refusal) -> OutcomeKind:
    return "put_off" if refusal.code in PASSING else "refused"


def _outcome(do: Do, reply: Reply) -> tuple[OutcomeKind, str]:
    if reply.state == "done" or (do == "tell" and reply.state == "not_effective"):
        return "done", reply.step
    if reply.refusal is not None and reply.state == "refused":
        return _kind(reply.refusal), reply.refusal.sentence
    return "failed", f"the outcome is {reply.state.replace('_', ' ')}: {reply.step}"
