"""GPUs of a fleet on which a model fits: how many of them, and how to claim them. Pure."""

import math
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from gpudeck.estimate import inference, training
from gpudeck.estimate.boards import Board, board_of
from gpudeck.estimate.inference import InferenceSetting
from gpudeck.estimate.parts import GIB, MemoryEstimate
from gpudeck.estimate.shape import Architecture
from gpudeck.estimate.speed import SpeedRange, days, decode_speed, training_speed
from gpudeck.estimate.training import TrainingSetting

Setting = InferenceSetting | TrainingSetting


@dataclass(frozen=True, slots=True)
class FleetBoards:
    """GPUs of one model and size. `on_a_node`: the most that one node has. `mem_bytes` None: not
    known. `is_mig`: a process uses one instance at a time, and its share of the bandwidth is not
    known."""

    model: str
    mem_bytes: float | None
    there: int
    free: int
    on_a_node: int
    is_mig: bool = False


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """A model and the setting to estimate. `tokens`: of a whole training."""

    model: Architecture
    setting: Setting
    mfu: float | None = None
    tokens: float | None = None

    def estimate(self, setting: Setting) -> MemoryEstimate:
        if isinstance(setting, InferenceSetting):
            return inference.estimate(self.model, setting)
        return training.estimate(self.model, setting)

    def gpus(self, setting: Setting) -> int:
        ways = setting.tp * setting.pp
        return ways if isinstance(setting, InferenceSetting) else ways * setting.dp

    def speed(self, setting: Setting, board: Board
              ) -> tuple[SpeedRange, tuple[float, float] | None]:
        if isinstance(setting, InferenceSetting):
            return decode_speed(self.model, setting, board), None
        speed = training_speed(self.model, setting, board, self.gpus(setting), self.mfu)
        return speed, None if self.tokens is None else days(self.tokens, speed)

    def layouts(self, most: int) -> Iterator[Setting]:
        """Yield the requested setting; if it uses one GPU, also wider ones by powers of two."""
        yield self.setting
        if self.gpus(self.setting) > 1:
            return
        ways = 2
        while ways <= most:
            if isinstance(self.setting, InferenceSetting):
                if all(block.attention.heads % ways == 0 for block in self.model.blocks):
                    yield replace(self.setting, tp=ways)
            elif self.setting.zero:
                yield replace(self.setting, dp=ways)
            ways *= 2


@dataclass(frozen=True, slots=True)
class FleetFit:
    boards: FleetBoards
    gpus: int | None
    layout: str
    estimate: MemoryEstimate | None
    speed: tuple[SpeedRange, tuple[float, float] | None] | None
    command: str
    why: str


def fits(question: FitQuestion, fleet: Collection[FleetBoards]) -> list[FleetFit]:
    """Return one fit for each kind of board: those that fit first, the fewest GPUs first."""
    fleet_fits = [_fit(question, boards) for boards in fleet]
    return sorted(fleet_fits, key=lambda fit: (fit.gpus is None, fit.gpus or 0,
                                               fit.boards.mem_bytes or 0.0, fit.boards.model))


def _fit(question: FitQuestion, boards: FleetBoards) -> FleetFit:
    if boards.mem_bytes is None:
        return FleetFit(boards, None, "", None, None, "", "how much memory it has is not known")
    least: MemoryEstimate | None = None
    for setting in question.layouts(1 if boards.is_mig else boards.there):
        memory, gpus = question.estimate(setting), question.gpus(setting)
        if gpus > (1 if boards.is_mig else boards.there):
            break
        least = memory
        if memory.ask <= boards.mem_bytes:
            board = None if boards.is_mig else board_of(boards.model)
            return FleetFit(boards, gpus, _layout(setting), memory,
                            None if board is None else question.speed(setting, board),
                            _command(memory, gpus, boards), _where(gpus, boards))
    return FleetFit(boards, None, "", least, None, "", _why_not(question, boards, least))


def _layout(setting: Setting) -> str:
    ways = [("TP", setting.tp), ("PP", setting.pp)]
    if isinstance(setting, TrainingSetting):
        ways.append((f"DP with ZeRO {setting.zero}" if setting.zero else "DP", setting.dp))
    return ", ".join(f"{name} {number}" for name, number in ways if number > 1) or "one GPU"


def _command(memory: MemoryEstimate, gpus: int, boards: FleetBoards) -> str:
    """Return the `gpudeck run` that claims the GPUs, "" where no node has so many.

    The model is given in the words that the pool compares; memory as a whole number of GiB, which
    must not be more than a board of 79.6 has.
    """
    if gpus > boards.on_a_node:
        return ""
    gib = min(math.ceil(memory.ask / GIB), int((boards.mem_bytes or 0.0) // GIB))
    return (f"gpudeck run --gpus {gpus} --mem {gib}G "
            f"--model {shlex.quote(boards.model)} -- COMMAND")


def _where(gpus: int, boards: FleetBoards) -> str:
    if gpus > boards.on_a_node:
        return (f"more than one node: the largest has {boards.on_a_node}; start one `gpudeck run` "
                "on each, or a launcher")
    if gpus > boards.free:
        return "`gpudeck run` waits in the queue until enough are free"
    return ""


def _why_not(question: FitQuestion, boards: FleetBoards, least: MemoryEstimate | None) -> str:
    if least is None and boards.is_mig:
        return "a process uses one MIG instance at a time"
    if least is None:
        return f"{question.gpus(question.setting)} GPUs are needed; there are {boards.there}"
    size = f"{least.ask / GIB:.1f} GiB per GPU are needed at the least"
    setting = question.setting
    if isinstance(setting, TrainingSetting) and not setting.zero and question.gpus(setting) == 1:
        return f"{size}; ZeRO or FSDP (zero 1 to 3) would divide it"
    return size
