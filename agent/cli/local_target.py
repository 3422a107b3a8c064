"""Actions on this machine from its own terminal, with the agent's own preview, checks and
journal."""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpudeck import action_views as views
from gpudeck.action_table import ShownAction
from gpudeck.actions import FINAL, PREVIEW_LASTS_S, ActionParams, Preview, Reply
from gpudeck.command_sentences import sentence
from gpudeck.errors import CommandError, ExitCode

from ..actions.standalone import StandaloneNode
from .targets import no_such_task

MOST_JOBS = 3


class LocalTarget:
    goes_on_alone = False

    def __init__(self, local: StandaloneNode, host: str, who: str) -> None:
        self._local = local
        self._host = host
        self._who = who
        self._shown: list[Preview] = []
        self._news: queue.Queue[views.CommandView] = queue.Queue()
        self._is_left = threading.Event()

    def choose(self, targets: Sequence[str], filter: str | None, user: str | None) -> list[str]:
        if filter is not None:
            raise CommandError("--filter goes with --hub; here, name the tasks", ExitCode.USAGE)
        tasks = self._local.tasks()
        known = {task.id for task in tasks}
        for target in targets:
            if target not in known:
                raise no_such_task(target, [msgspec.to_builtins(task) | {"node": self._host}
                                            for task in tasks])
        return [*targets]

    def preview(self, action: ShownAction, targets: Sequence[str], params: Mapping[str, Any],
                is_plan: bool) -> views.PreviewView:
        how = msgspec.convert(params, ActionParams)
        looks = [self._local.preview(action, task_id, how) for task_id in targets]
        jobs = {look.job_id or look.task_id: look for look in looks}
        self._shown = [*jobs.values()]
        if len(jobs) > MOST_JOBS:
            raise CommandError(f"{len(jobs)} jobs: more than {MOST_JOBS} need a second person, who "
                               "is asked through a hub; give --hub", ExitCode.REFUSED)
        names = {uuid: (each.index, each.place) for uuid, each in self._local.facts().items()}
        items = tuple(self._item(look, asked_of(look, looks), names) for look in self._shown)
        return views.PreviewView("here", action, msgspec.to_builtins(how),
                                 min(look.taken_at for look in looks) + PREVIEW_LASTS_S, items)

    def _item(self, look: Preview, asked: tuple[str, ...], gpu_names: views.GpuNames
              ) -> views.PreviewItemView:
        tasks = tuple(each.task_id for each in look.victims if each.task_id is not None)
        main = next((each for each in look.victims if each.task_id == look.task_id), None)
        held = [each for victim in look.victims for each in victim.held]
        return views.preview_item(look, self._host, tasks or asked, main, held, gpu_names,
                                  lambda _user, command: command)

    def order(self, preview_id: str, reason: str,
              despite_maintenance: bool = False) -> views.OrderResultView:
        todo = [look for look in self._shown if not look.refusals]
        commands = [_waiting(look, self._host, reason, at) for at, look in enumerate(todo)]
        threading.Thread(target=self._work, args=(todo, commands, reason), daemon=True).start()
        return views.OrderResultView(tuple(commands))

    def _work(self, todo: list[Preview], commands: list[views.CommandView], reason: str) -> None:
        """One after the other, as the agent does."""
        for look, command in zip(todo, commands, strict=True):
            if self._is_left.is_set():
                self._news.put(_not_begun(command))
                continue
            def says(reply: Reply, command: views.CommandView = command,
                     bystanders: int = len(look.bystanders)) -> None:
                self._news.put(_told(command, reply, bystanders))
            try:
                says(self._local.act(look, reason, self._who, says))
            except Exception as error:  # whoever waits for it must hear of it
                self._news.put(_failed(command, error))

    def follow(self, commands: Sequence[views.CommandView]) -> Iterator[views.CommandView]:
        open_ids = {command.id for command in commands if command.state not in FINAL}
        while open_ids:
            try:
                now = self._news.get(timeout=0.2)
            except queue.Empty:
                continue
            if now.state in FINAL:
                open_ids.discard(now.id)
            yield now

    def left(self, commands: Sequence[views.CommandView]) -> str:
        self._is_left.set()
        return ("finishing actions in progress, because nothing else would check their outcome; "
                "the rest is skipped. Ctrl-C again stops at once: their outcome is then unknown")


def asked_of(look: Preview, looks: Sequence[Preview]) -> tuple[str, ...]:
    return tuple(each.task_id for each in looks
                 if (each.job_id or each.task_id) == (look.job_id or look.task_id))


def _waiting(look: Preview, host: str, reason: str, at: int) -> views.CommandView:
    return views.CommandView(f"here-{at + 1}", look.action, look.node_id, host, "queued", "",
                             look.task_id, look.job_id, look.owner, reason=reason)


def _told(command: views.CommandView, reply: Reply, bystanders: int) -> views.CommandView:
    told = _ReplySummary(command.action, reply, bystanders)
    return msgspec.structs.replace(
        command, state=reply.state, step=reply.step, sentence=sentence(told), updated_at=reply.at,
        refusal=msgspec.convert(reply.refusal, views.RefusalView | None, from_attributes=True),
        verified=msgspec.convert(reply.verified, views.VerificationView | None,
                              from_attributes=True))


class _ReplySummary:
    def __init__(self, action: Any, reply: Reply, bystanders: int | None) -> None:
        self.action = action
        self.state = reply.state
        self.step = reply.step
        self.bystanders = bystanders
        self.refusal = reply.refusal
        self.verified = reply.verified


def _not_begun(command: views.CommandView) -> views.CommandView:
    return msgspec.structs.replace(
        command, state="expired", sentence="Expired, nothing was done: it was interrupted before "
                                           "its turn came.")


def _failed(command: views.CommandView, error: Exception) -> views.CommandView:
    return msgspec.structs.replace(
        command, state="unknown", sentence=f"Unknown: {error}; check the task itself.")
