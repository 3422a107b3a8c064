"""Orders for what was shown, one Command per job."""

import time
from collections.abc import Iterable

from gpudeck.action_table import ShownAction
from gpudeck.actions import COMMAND_LASTS_S, ActionParams, CommandActor

from ..access.policy import Actor, by
from .commander import Commander, new_id
from .guards import ActionGuards
from .lifecycle import CommandRecord
from .preview_cache import JobPreview, PreviewTarget
from .preview_views import preview_task_ids, real_tasks
from .setting_actions import TASKS
from .views import main_victim, mem_of


class JobOrderer:
    def __init__(self, commander: Commander, guards: ActionGuards) -> None:
        self._commander = commander
        self._guards = guards

    def order_all(self, actor: Actor, jobs: Iterable[JobPreview], action: ShownAction,
                  params: ActionParams, reason: str, approved_by: str | None = None
                  ) -> list[CommandRecord]:
        asker = CommandActor("program" if actor.kind == "program" else "person", actor.name,
                             approved_by)
        return [self._order(actor, asker, job, action, params, reason) for job in jobs]

    def _order(self, actor: Actor, asker: CommandActor, job: JobPreview, action: ShownAction,
               params: ActionParams, reason: str) -> CommandRecord:
        now, preview, target = time.time(), job.preview, job.target
        refusal = job.refusal or (preview.refusals[0] if preview and preview.refusals else None)
        refusal = refusal or self._guards.refusal(target.node_id)
        victim = None if preview is None else main_victim(preview)
        record = CommandRecord(
            new_id(now), action, target.node_id, target.host, asker, reason, now, now,
            now + COMMAND_LASTS_S, params, task_id=_task_id(target),
            task_ids=real_tasks(target.task_ids if preview is None else preview_task_ids(preview)),
            job_id=None if preview is None else preview.job_id,
            owner=target.owner if preview is None else preview.owner,
            command=target.command if victim is None else victim.command,
            mem_used_bytes=None if preview is None else mem_of(preview),
            bystanders=None if preview is None else len(preview.bystanders),
            credential=actor.credential)
        return self._commander.order(record, preview, refusal, **by(actor))


def _task_id(target: PreviewTarget) -> str | None:
    return None if target.task_ids == TASKS else target.task_ids[0]
