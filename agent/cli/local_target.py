"""Actions on this machine from its own terminal, with the agent's own preview, checks and
journal."""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpudeck.contract import action_views as views
from gpudeck.contract.action_table import ShownAction
from gpudeck.contract.actions import FINAL, PREVIEW_LASTS_S, ActionParams, Preview, Reply
from gpudeck.errors import CommandError, ExitCode
from gpudeck.words.commands import sentence

from ..actions.standalone import StandaloneNode
from .targets import no_such_task

MOST_JOBS = 3


class LocalTarget:
    goes_on_alone = False

    def __init__(self, local: StandaloneNode, host: str, actor: str) -> None:
        self._local = local
        self._host = host
        self._actor = actor
        self._previews: list[Preview] = []
        self._news: queue.Queue[views.CommandView] = queue.Queue()
        self._is_left = threading.Event()

    def choose(self, targets: Sequence[str], filter: str | None, user: str | None) -> list[str]:
        if filter is not None:
            raise CommandError("--filter goes with --hub; here, name the tasks", ExitCode.USAGE)
        tasks = self._local.tasks()
        task_ids = {task.id for task in tasks}
        for target in targets:
            if target not in task_ids:
                raise no_such_task(target, [msgspec.to_builtins(task) | {"node": self._host}
                                            for task in tasks])
        return [*targets]

    def preview(self, action: ShownAction, targets: Sequence[str], params: Mapping[str, Any],
                is_plan: bool) -> views.PreviewView:
        how = msgspec.convert(params, ActionParams)
        previews = [self._local.preview(action, task_id, how) for task_id in targets]
        jobs = {preview.job_id or preview.task_id: preview for preview in previews}
        self._previews = [*jobs.values()]
        if len(jobs) > MOST_JOBS:
            raise CommandError(f"{len(jobs)} jobs: more than {MOST_JOBS} need a second person, who "
                               "is asked through a hub; give --hub", ExitCode.REFUSED)
        names = {uuid: (facts.index, facts.place) for uuid, facts in self._local.facts().items()}
        items = tuple(self._item(preview, job_tasks(preview, previews), names)
                      for preview in self._previews)
        ends_at = min(preview.taken_at for preview in previews) + PREVIEW_LASTS_S
        return views.PreviewView("here", action, msgspec.to_builtins(how), ends_at, items)

    def _item(self, preview: Preview, task_ids: tuple[str, ...], gpu_names: views.GpuNames
              ) -> views.PreviewItemView:
        tasks = tuple(victim.task_id for victim in preview.victims if victim.task_id is not None)
        main = next((victim for victim in preview.victims
                     if victim.task_id == preview.task_id), None)
        uses = [use for victim in preview.victims for use in victim.held]
        return views.preview_item(preview, self._host, tasks or task_ids, main, uses, gpu_names,
                                  lambda _user, command: command)

    def order(self, preview_id: str, reason: str,
              despite_maintenance: bool = False) -> views.OrderResultView:
        todo = [preview for preview in self._previews if not preview.refusals]
        commands = [_queued_command(preview, self._host, reason, at)
                    for at, preview in enumerate(todo)]
        threading.Thread(target=self._work, args=(todo, commands, reason), daemon=True).start()
        return views.OrderResultView(tuple(commands))

    def _work(self, todo: list[Preview], commands: list[views.CommandView], reason: str) -> None:
        """Carry out one after the other, as the agent does."""
        for preview, command in zip(todo, commands, strict=True):
            if self._is_left.is_set():
                self._news.put(_expired_command(command))
                continue
            def report(reply: Reply, command: views.CommandView = command,
                       bystanders: int = len(preview.bystanders)) -> None:
                self._news.put(_with_reply(command, reply, bystanders))
            try:
                report(self._local.act(preview, reason, self._actor, report))
            except Exception as error:  # the one who waits for it must learn of it
                self._news.put(_failed_command(command, error))

    def follow(self, commands: Sequence[views.CommandView]) -> Iterator[views.CommandView]:
        open_ids = {command.id for command in commands if command.state not in FINAL}
        while open_ids:
            try:
                command = self._news.get(timeout=0.2)
            except queue.Empty:
                continue
            if command.state in FINAL:
                open_ids.discard(command.id)
            yield command

    def interrupted(self, commands: Sequence[views.CommandView]) -> str:
        self._is_left.set()
        return ("finishing actions in progress, because nothing else would check their outcome; "
                "the rest is skipped. Ctrl-C again stops at once: their outcome is then unknown")


def job_tasks(preview: Preview, previews: Sequence[Preview]) -> tuple[str, ...]:
    return tuple(other.task_id for other in previews
                 if (other.job_id or other.task_id) == (preview.job_id or preview.task_id))


def _queued_command(preview: Preview, host: str, reason: str, at: int) -> views.CommandView:
    return views.CommandView(f"here-{at + 1}", preview.action, preview.node_id, host, "queued", "",
                             preview.task_id, preview.job_id, preview.owner, reason=reason)


def _with_reply(command: views.CommandView, reply: Reply, bystanders: int) -> views.CommandView:
    summary = _ReplySummary(command.action, reply, bystanders)
    return msgspec.structs.replace(
        command, state=reply.state, step=reply.step, sentence=sentence(summary),
        updated_at=reply.at,
        refusal=msgspec.convert(reply.refusal, views.RefusalView | None, from_attributes=True),
        verified=views.verification_view(reply.verified))


class _ReplySummary:
    def __init__(self, action: Any, reply: Reply, bystanders: int | None) -> None:
        self.action = action
        self.state = reply.state
        self.step = reply.step
        self.bystanders = bystanders
        self.refusal = reply.refusal
        self.verified = reply.verified


def _expired_command(command: views.CommandView) -> views.CommandView:
    return msgspec.structs.replace(
        command, state="expired", sentence="Expired, nothing was done: it was interrupted before "
                                           "its turn came.")


def _failed_command(command: views.CommandView, error: Exception) -> views.CommandView:
    return msgspec.structs.replace(
        command, state="unknown", sentence=f"Unknown: {error}; check the task itself.")
