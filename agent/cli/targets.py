"""Target of a terminal's actions through a hub. Those on this machine go through local_target.py,
which has the same methods."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpudeck.client.hub import Client
from gpudeck.contract.action_views import CommandView
from gpudeck.contract.actions import FINAL
from gpudeck.errors import CommandError, ExitCode
from gpudeck.words.actions import printable, words
from gpudeck.words.command_lines import short_command

LOOK_EVERY_S = 0.2
SILENT_FOR_S = 60.0
MOST_LISTED = 20

Item = dict[str, Any]


class HubTarget:
    goes_on_alone = True  # what was ordered is done, whether or not this terminal follows

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self.preview, self.order = client.preview, client.order

    def choose(self, targets: Sequence[str], filter: str | None, user: str | None) -> list[str]:
        """Return exact task ids. Raises CommandError with the reason."""
        if filter is not None:
            gpus = {(gpu["node"], gpu["uuid"]) for gpu in self._client.gpus(filter)}
            return matching(self._client.tasks(filter), gpus, user)
        for target in targets:
            if self._client.task(target) is None:
                raise no_such_task(target, self._client.tasks())
        return [*targets]

    def follow(self, commands: Sequence[CommandView]) -> Iterator[CommandView]:
        """Yield each command whenever it has changed, until all have ended."""
        latest = {command.id: command for command in commands}
        answered_at = time.monotonic()
        while open_ids := [id for id, command in latest.items() if command.state not in FINAL]:
            for command_id in open_ids:
                try:
                    command = self._client.command(command_id)
                except CommandError as error:
                    self._check_silence(error, time.monotonic() - answered_at)
                    continue
                answered_at = time.monotonic()
                if command != latest[command_id]:
                    latest[command_id] = command
                    yield command
            time.sleep(LOOK_EVERY_S)

    def _check_silence(self, error: CommandError, silent_s: float) -> None:
        """Raise CommandError unless the hub may just be restarting: its answer afterwards
        counts."""
        if error.code != ExitCode.UNREACHABLE or silent_s > SILENT_FOR_S:
            raise CommandError(f"{error}; the action continues, but its outcome is not "
                               "known here", ExitCode.UNKNOWN) from error

    def interrupted(self, commands: Sequence[CommandView]) -> str:
        """Return what holds when the person at the terminal leaves before the end."""
        ids = " ".join(command.id for command in commands)
        return ("the action continues; nothing was undone. To see its outcome: "
                f"gpudeck follow {ids} --hub {self._url}")


def matching(tasks: Sequence[Item], gpus: set[tuple[str, str]], user: str | None) -> list[str]:
    """Return the ids of the tasks that match. A filter picks GPUs. A task is meant only if all of
    its GPUs are: one idle GPU of eight is no idle job. And where owners share a GPU, a filter
    cannot tell whose task is meant."""
    whole = [task for task in tasks
             if task["gpus"] and all((task["node"], use["uuid"]) in gpus for use in task["gpus"])]
    if user is not None:
        whole = [task for task in whole if task["user"] == user]
    elif sharers := _sharers(whole):
        raise CommandError(f"{' and '.join(sharers)} share a GPU that matches; say whose tasks are "
                           "meant with --user NAME, or name tasks", ExitCode.USAGE)
    if not whole:
        raise CommandError("no task matches on all of its GPUs" +
                           ("" if user is None else f" and belongs to {printable(user)}"))
    return [str(task["id"]) for task in whole]


def _sharers(tasks: Sequence[Item]) -> list[str]:
    """Return the owners who have tasks on one and the same GPU."""
    owners: dict[tuple[str, str], set[str]] = {}
    for task in tasks:
        for use in task["gpus"]:
            owners.setdefault((task["node"], use["uuid"]), set()).add(words(task["user"]))
    return sorted({name for names in owners.values() if len(names) > 1 for name in names})


def no_such_task(target: str, tasks: Sequence[Item]) -> CommandError:
    """Return the error: a pid or a name is no target, and tasks that it might mean are listed."""
    candidates = [task for task in tasks if _is_like(task, target)]
    if not candidates:
        return CommandError(f"there is no task {printable(target)!r} that you may see; "
                            "`gpudeck tasks` lists them", ExitCode.USAGE)
    listed = [f"  {printable(str(task['id']))}  {printable(str(task.get('host') or task['node']))}"
              f"  {words(task['user'])}  {printable(short_command(task['command']))[:60]}"
              for task in candidates[:MOST_LISTED]]
    more = [f"  and {len(candidates) - MOST_LISTED} more"] if len(candidates) > MOST_LISTED else []
    return CommandError("\n".join([
        f"{printable(target)!r} is not a task id; a pid or a name may be another's by the time it "
        "is hit. Name one of these:", *listed, *more]), ExitCode.USAGE)


def _is_like(task: Item, target: str) -> bool:
    if target.isdigit():
        return str(task["pid"]) == target
    return (task["user"] == target or str(task["id"]).startswith(target)
            or target in (task["command"] or ""))
