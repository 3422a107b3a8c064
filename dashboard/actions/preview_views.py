"""Previews as people and programs are shown them, with what speaks against each."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import to_builtins

from gpudeck.action_table import HARMFUL, ROWS, ShownAction
from gpudeck.action_views import ActionRequirementsView, PreviewItemView, PreviewView
from gpudeck.actions import Preview
from gpudeck.command_sentences import ranks_left

from ..access.policy import Actor, is_fresh
from ..fleet.fleet import Fleet
from ..fleet.owner_views import ranks_beside
from ..fleet.visibility import CommandLineVisibility
from .guards import ActionGuards
from .preview_cache import CachedPreview, JobPreview
from .setting_actions import TASKS
from .views import item, refused_item, shown_task_ids

MOST_ALONE = 3


@dataclass(frozen=True, slots=True)
class SecondPersonRule:
    is_on: bool

    def applies_to(self, ready: Iterable[JobPreview]) -> bool:
        jobs = sum(len(one.preview.victims) if one.preview is not None
                   and one.preview.params.setting is not None else 1 for one in ready)
        return self.is_on and jobs > MOST_ALONE


class PreviewPresenter:
    def __init__(self, fleet: Fleet, guards: ActionGuards, second_person: SecondPersonRule) -> None:
        self._fleet = fleet
        self._guards = guards
        self._second_person = second_person

    def view(self, shown: CachedPreview, reads: CommandLineVisibility) -> PreviewView:
        ready = [job for job in shown.jobs if not job.is_refused]
        return PreviewView(
            shown.id, shown.action, to_builtins(shown.params), shown.expires_at,
            self.items(shown.jobs, reads),
            ActionRequirementsView(_needs_fresh(shown.actor, shown.action, ready),
                                   self._second_person.applies_to(ready),
                                   self._guards.maintenance_among(ready) is not None),
            not ready)

    def items(self, jobs: Iterable[JobPreview], reads: CommandLineVisibility
              ) -> tuple[PreviewItemView, ...]:
        return tuple(self._item(job, reads) for job in jobs)

    def _item(self, job: JobPreview, reads: CommandLineVisibility) -> PreviewItemView:
        target, refusal = job.target, job.refusal
        maintenance = self._guards.maintenance_of(target.node_id)
        warnings = [] if maintenance is None else [maintenance[0].upper() + maintenance[1:] + "."]
        if job.preview is None:
            assert refusal is not None
            task_ids = real_tasks(target.task_ids)
            return refused_item(task_ids, target.node_id, target.host, target.owner,
                                reads.line(target.owner, target.command),
                                self._guards.keep_of(task_ids), warnings, refusal)
        return item(job.preview, target.host, reads, self._gpu_names(target.node_id),
                    self._guards.keep_of(shown_task_ids(job.preview)),
                    self._warnings(job.preview) + warnings, () if refusal is None else (refusal,))

    def _warnings(self, preview: Preview) -> list[str]:
        row = ROWS[preview.action]
        is_owner_concerned = not row.is_setting and (row.is_harmful or row.only_tells)
        unreached = self._guards.unreached_owner(preview.owner) if is_owner_concerned else None
        # Ranks also on nodes that the asker does not see: counted, never named.
        nodes = self._fleet.nodes.values()
        return [*([] if unreached is None else [unreached]),
                *ranks_left(preview.action, *ranks_beside(nodes, preview.node_id,
                                                          preview_task_ids(preview)))]

    def _gpu_names(self, node_id: str) -> dict[str, tuple[int, str]]:
        fleet, node = self._fleet, self._fleet.nodes.get(node_id)
        slots = [] if node is None or node.listing is None else list(node.listing.order)
        return {fleet.uuids[slot]: (fleet.facts[slot].index, fleet.facts[slot].place)
                for slot in slots}


def _needs_fresh(actor: Actor, action: ShownAction, ready: list[JobPreview]) -> bool:
    others = any(not actor.scope.owns(name) for one in ready for name in one.owners)
    return (actor.kind == "person" and action in HARMFUL and others
            and not is_fresh(actor, time.time()))


def preview_task_ids(preview: Preview) -> tuple[str, ...]:
    found = tuple(victim.task_id for victim in preview.victims if victim.task_id is not None)
    return found or (preview.task_id,)


def real_tasks(task_ids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(task_id for task_id in task_ids if task_id not in TASKS)
