"""Part of a detached run, in a process that was forked for it: waits, runs, notes how it ended."""

import os
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from gpudeck.contract.pool_messages import ClaimWaits, Leased
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool.connection import PoolConnection
from gpudeck.pool.environment import EnvironmentChange

from ..run import QueuedCommand, line_of, read_options, say
from ..run_ranks import Rank
from .folder import RunFolder, this_process
from .request import RunPart, RunRequest

AGENT_AGAIN_S = 2.0
DISK_AGAIN_S = 5.0
CANNOT_RUN = 126  # as shells have it


class _DetachedCommand(QueuedCommand):
    """Command that notes its state on disk, and gives up its slot among those that wait when it has
    its GPUs."""

    def __init__(self, folder: RunFolder, request: RunRequest, index: int | None, slot: int
                 ) -> None:
        words, command = request.words, request.command
        super().__init__(read_options(words), command, line_of(words, command))
        self._folder = folder
        self._index = index
        self._slot: int | None = slot
        self._note = RunPart("waiting", process=this_process())
        self.note()

    def note(self, **changes: object) -> None:
        """Note the state, if that can be written now: the command does not wait for a full disk."""
        self._note = msgspec.structs.replace(self._note, **changes)
        try:
            self._folder.put(self._index, self._note)
        except OSError as error:
            say(str(error))

    def ended(self, status: int) -> RunPart:
        return msgspec.structs.replace(self._note, state="ended", why="", status=status,
                                       ended_at=time.time())

    def _report_wait(self, waits: ClaimWaits) -> None:
        super()._report_wait(waits)
        self.note(why=f"number {waits.place} in the queue: {waits.why}")

    def _run_command(self, pool: PoolConnection, lease: Leased, change: EnvironmentChange,
                     ranks: Sequence[Rank]) -> int:
        if self._slot is not None:
            os.close(self._slot)
            self._slot = None
        self.note(state="running", why="", begun_at=time.time(),
                  gpus=tuple(gpu.index for gpu in lease.gpus))
        return super()._run_command(pool, lease, change, ranks)


def run_part(folder: RunFolder, request: RunRequest, index: int | None, slot: int) -> NoReturn:
    """Run a part, in the forked process."""
    status = CANNOT_RUN
    try:
        os.setsid()
        _write(folder, lambda: _redirect(folder, index))
        os.environ.update(folder.environment(request, index))
        status = _run(folder, request, index, slot)
    except BaseException as error:  # the process must end here, whatever it was
        say(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _run(folder: RunFolder, request: RunRequest, index: int | None, slot: int) -> int:
    try:
        os.chdir(request.cwd)
        command = _DetachedCommand(folder, request, index, slot)
        if folder.is_cancelled(index):  # by somebody who did not see this process yet
            raise CommandError("it was cancelled")
        status = _run_to_end(command)
    except (CommandError, OSError) as error:
        say(str(error))
        refusal = RunPart("refused", str(error), ended_at=time.time())
        _write(folder, lambda: folder.put(index, refusal))
        return error.code if isinstance(error, CommandError) else CANNOT_RUN
    end = command.ended(status)
    _write(folder, lambda: folder.put(index, end))
    return status


def _write(folder: RunFolder, write: Callable[[], None]) -> None:
    """Write when there is room: a full disk has some later, and nobody else knows how it ended. Not
    into a folder that somebody has removed."""
    while True:
        try:
            return write()
        except OSError as error:
            if not folder.is_there():
                raise
            say(str(error))
            time.sleep(DISK_AGAIN_S)


def _run_to_end(command: _DetachedCommand) -> int:
    """Run the command to its end. Where no agent answers nothing has begun, and nobody sits there
    to ask it again."""
    while True:
        try:
            return command.run()
        except CommandError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            command.note(why=str(error))
            time.sleep(AGENT_AGAIN_S)


def _redirect(folder: RunFolder, index: int | None) -> None:
    """Redirect standard input and output: there is no terminal to read from or to write to."""
    out = os.open(folder.output(index), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((null, 0), (out, 1), (out, 2)):
        os.dup2(fd, place)
