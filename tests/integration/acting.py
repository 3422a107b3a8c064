"""Agents that answer Looks and Commands as the contract says; what they do, a test decides."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import msgspec
import socketio

from gpudeck.contract.actions import (
    ActionVerification,
    Bystander,
    Command,
    HeldGpu,
    Preview,
    ProcessIdentity,
    Refusal,
    Reply,
    Victim,
)
from gpudeck.contract.wire import (
    Beat,
    Challenge,
    FromHub,
    Inquire,
    Look,
    Noted,
    SignedCommand,
    Task,
    Tasks,
    Use,
    Welcome,
    command_statement,
    decode_command,
    decode_from_hub,
    preview_statement,
)
from gpudeck.network.keys import is_signed
from tests.integration.hubs import WireAgent, wait_for
from tests.integration.visitors import Visitor
from tests.patience import GIVE_UP_S

DONE = ActionVerification(True, True, True, 2e9, 0.0)


def several(count: int, user: str | None = "alice", boot: str = "boot-1") -> Tasks:
    """Return tasks that are each a separate job."""
    began = tuple(Task(f"{boot}-{100 + at}-5", 100 + at, 5, 1_000.0, user, f"python train{at}.py",
                       job_id=f"{boot}-{100 + at}-5") for at in range(count))
    return Tasks(True, began, tuple(Use(task.id, 0, 1e9, 50.0, "running") for task in began))


class ActingAgent(WireAgent):
    """An agent that performs nothing: it answers a Command with the replies that `does` returns."""

    def __init__(self, name: str, gpus: int = 2, seed: int | None = None) -> None:
        super().__init__(name, gpus, seed)
        self.looks: list[Look] = []
        self.commands: list[SignedCommand] = []
        self.executed: list[str] = []
        self.inquiries: list[str] = []
        self.noted_replies: list[tuple[str, int]] = []
        self.refusals: tuple[Refusal, ...] = ()
        self.users: dict[str, str | None] = {}  # of a task's process; the one of the task else
        self.ticks: dict[str, int] = {}  # start ticks, where a test moves them
        self.is_deaf = False  # looks are not answered
        self.is_mute = False  # commands are not answered
        self.forges: Callable[[Preview], Preview] = lambda preview: preview
        self.does: Callable[[Command], list[Reply]] = self._succeed
        self._replies: dict[str, list[Reply]] = {}
        self._tasks: dict[str, Task] = {}
        self._hub_key = b""

    def _emit(self, payload: bytes) -> None:
        """Send, unless the connection has just ended: then it is lost, as on a wire."""
        with contextlib.suppress(socketio.exceptions.BadNamespaceError):
            super()._emit(payload)

    def show(self, tasks: Tasks) -> None:
        self._tasks = {task.id: task for task in tasks.began}
        self.tick(tasks)

    def epoch_seen(self, epoch: int) -> None:
        self.caller.said = msgspec.structs.replace(self.caller.said, epoch_seen=epoch)

    def _on_message(self, data: bytes) -> None:
        message: FromHub = decode_from_hub(data)
        match message:
            case Challenge():
                self._hub_key = message.hub_key
            case Welcome():
                self.epoch_seen(max(self.caller.said.epoch_seen, message.epoch))
            case Look():
                self.looks.append(message)
                if not self.is_deaf:
                    self.say(self.forges(self.preview(message)))
            case SignedCommand():
                self.commands.append(message)
                self._take(message)
            case Inquire():
                self.inquiries += message.command_ids
                for command_id in message.command_ids:
                    self._answer(command_id)
            case Noted():
                self.noted_replies.append((message.command_id, message.number))
            case _:
                super()._on_message(data)
                return
        if isinstance(message, Challenge | Welcome):
            super()._on_message(data)

    def preview(self, look: Look) -> Preview:
        task = self._tasks[look.task_id]
        user = self.users.get(task.id, task.user)
        held_gpus = (HeldGpu(self.facts[0].uuid, 2e9),)
        victim = Victim(ProcessIdentity(task.pid, self.ticks.get(task.id, 5), 1_000, "8:1", None,
                                        None),
                        task.command, user, task.id, held_gpus)
        bystanders = tuple(
            Bystander(ProcessIdentity(other.pid, 5, 1_001, "8:1", None, None), other.id, other.user,
                      other.command, held_gpus)
            for other in self._tasks.values() if other.id != task.id)
        return self.sign(Preview(
            look.ask_id, look.nonce, self.node_id, "boot-1", time.time(), look.action, look.params,
            task.id, task.job_id, user, 500.0, "compute", None, (victim,), bystanders[:256],
            self.refusals, ("Nothing brings its work back.",), self.caller.key.public))

    def sign(self, preview: Preview) -> Preview:
        return msgspec.structs.replace(
            preview, signature=self.caller.key.sign(preview_statement(preview)))

    def _take(self, message: SignedCommand) -> None:
        assert is_signed(self._hub_key, command_statement(message.body), message.signature)
        command = decode_command(message.body)
        assert command.node_id == self.node_id
        assert command.epoch >= self.caller.said.epoch_seen
        if command.command_id not in self._replies:
            self.executed.append(command.command_id)
            self._replies[command.command_id] = self.does(command)
        self._answer(command.command_id)

    def _answer(self, command_id: str) -> None:
        if self.is_mute:
            return
        never = [Reply(command_id, 1, "expired", time.time())]
        for reply in self._replies.get(command_id, never):
            self.say(reply)

    def _succeed(self, command: Command) -> list[Reply]:
        now = time.time()
        return [Reply(command.command_id, 1, "accepted", now),
                Reply(command.command_id, 2, "acting", now),
                Reply(command.command_id, 3, "done", now, verified=DONE)]

    def beat(self, *holds: str) -> None:
        self.say(Beat("ok", 0.5, 0, 0, "", holds))


def previewed(visitor: Visitor, *task_ids: str, action: str = "end", **more: Any) -> Any:
    answer = visitor.send("/api/v1/previews", {"action": action, "targets": list(task_ids)} | more)
    assert answer.status == 201, (answer.status, answer.body)
    return answer.json


def ordered(visitor: Visitor, preview: Any, reason: str = "it hangs") -> Any:
    answer = visitor.send("/api/v1/commands", {"preview": preview["id"], "reason": reason})
    assert answer.status == 202, (answer.status, answer.body)
    return answer.json


def settled(visitor: Visitor, command_id: str, state: str = "done", within_s: float = GIVE_UP_S
            ) -> Any:
    def look() -> Any:
        command = visitor.get(f"/api/v1/commands/{command_id}")
        return command if command["state"] == state else None
    return wait_for(look, within_s, f"{command_id} is {state}")
