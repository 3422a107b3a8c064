"""Previews as people and programs are shown them, with what speaks against each."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from gpudeck.actions import Preview, ShownAction
from gpudeck.command_sentences import ranks_left

from ..access.policy import Actor, is_fresh
from ..fleet.fleet import Fleet
from ..fleet.owner_views import ranks_beside
from ..fleet.visibility import CommandLineVisibility
from .guards import ActionGuards
from .preview_cache import CachedPreview, JobPreview
from .setting_actions import HARMFUL
from .views import (
    ActionRequirementsView,
    PreviewItemView,
    PreviewView,
    item,
    refused_item,
)

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
            shown.id, shown.action, shown.params, shown.expires_at, self.items(shown.jobs, reads),
            ActionRequirementsView(_needs_fresh(shown.actor, shown.action, ready),
                                   self._second_person.applies_to(ready),
                                   self._guards.maintenance_among(ready) is not None),
            not ready)

    def items(self, jobs: Iterable[JobPreview],
              reads: CommandLineVisibility) -> list[PreviewItemView]:
        return [self._item(job, reads) for job in jobs]

    def _item(self, job: JobPreview, reads: CommandLineVisibility) -> PreviewItemView:
        target, refusal = job.target, job.refusal
        if job.preview is None:
            assert refusal is not None
            made = refused_item(list(target.task_ids), target.node_id, target.host, target.owner,
                                reads.line(target.owner, target.command), refusal)
        else:
            made = item(job.preview, target.host, reads, self._gpu_names(target.node_id),
                        () if refusal is None else (refusal,))
            made.warnings += self._warnings(job.preview, made.owner)
        maintenance = self._guards.maintenance_of(target.node_id)
        made.warnings += [] if maintenance is None else [
            maintenance[0].upper() + maintenance[1:] + "."]
        made.keep = self._guards.keep_of(made.task_ids)
        return made

    def _warnings(self, preview: Preview, owner: str | None) -> list[str]:
        is_owner_told = preview.action != "resume" and preview.params.setting is None
        unreached = self._guards.unreached_owner(owner) if is_owner_told else None
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
