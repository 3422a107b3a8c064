"""Wiring of actions into the node."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpudeck.contract import wire
from gpudeck.contract.actions import Recall

from ..capability import Capability, Handlers, NodeCore
from ..limits.mps import LocalMpsDaemons
from ..runtime.action_lock import ActionLock
from ..schedulers import Schedulers
from ..telemetry.recent_tasks import RecentTasks
from .context import ActionGuards, NodeContext, open_context
from .hub_record import HubRecord
from .kinds.execution import ActionTimeouts
from .replies import ReplyOutbox
from .service import CommandService


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    ceiling: Path | None  # None: the usual place
    hold_files: tuple[Path, ...]
    hub_file: Path | None  # where the hub's hold is told to users of the machine
    timeouts: ActionTimeouts
    schedulers: Schedulers


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCapability(Capability):
    hub: HubRecord
    context: NodeContext


def build(core: NodeCore, options: ActionOptions, mps: LocalMpsDaemons, recent: RecentTasks,
          driver: Callable[[], str | None]) -> ActionCapability:
    """`driver`: its version, as it was read last."""
    replies = ReplyOutbox(core.journal, core.wake)
    hub = HubRecord(core.journal, core.identity.hub, options.hold_files,
                    options.hub_file, replies)
    context = open_context(
        node_id=core.identity.node_id, boot_id=core.boot_id, backend=core.backend,
        options=core.options, data=core.data, source=core.source, recent=recent, mps=mps,
        journal=core.journal, is_shared=not core.is_made_up, driver=driver,
        schedulers=options.schedulers,
        guards=ActionGuards(options.ceiling, hub.holds, core.journal.begun_at_most))
    commands = CommandService(
        core.identity.key, ActionLock(core.data), context, core.journal, hub, replies,
        keeps_anchors=not core.is_made_up, timeouts=options.timeouts)
    return ActionCapability(
        name="actions", handlers=command_handlers(commands),
        connected=lambda welcome, now: commands.connected(welcome.epoch, now),
        accept_hub_key=hub.accept_key, poll=commands.say, due_at=commands.next_at,
        trouble=lambda: hub.trouble, close=commands.close,
        hub=hub, context=context)


def command_handlers(commands: CommandService) -> Handlers:
    return {
        wire.Time: commands.set_time,
        wire.Look: lambda message, now: commands.look(message),
        wire.SignedCommand: lambda message, now: commands.judge(message),
        Recall: lambda message, now: commands.recall(message),
        wire.Inquire: lambda message, now: commands.inquire(message),
        wire.Noted: lambda message, now: commands.acknowledge(message),
        wire.Anchor: lambda message, now: commands.store_anchor(message),
    }
