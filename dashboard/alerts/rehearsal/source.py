"""Rehearsal data from history: chunk by chunk, what a rule would have read."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpudeck.contract.actions import Refusal
from gpudeck.contract.ladder import Do

from ...fleet.fleet import Fleet
from ...fleet.members import EnrolledNode
from ...fleet.mig import NO_PARENT
from ...history.columns.grid import Name
from ...history.reads.protocol import RuleHistory
from ..core.firing_alerts import AlertTarget
from ..core.numbers import unrecorded
from ..core.rule import CompiledRule
from .engine import RehearsalChunk, RehearsedAlert, pieces

MOST_CELLS = 16_000_000  # of one number in memory at once
CELLS_OF_SECONDS, SECONDS_AT_ONCE = 4_000_000, 300  # at least this many, in whole blocks of these
MOST_SECONDS = 300_000_000  # GPU-seconds of a rule that reads seconds
MOST_S = 92 * 86_400


class CannotRehearseError(ValueError):
    """Says why a rehearsal is impossible, and what to ask for instead."""


@dataclass(frozen=True, slots=True)
class MembershipHistory:
    """Nodes by id: since when each has belonged to this hub, and which were revoked since. A node
    of which it is not known belongs from when it was first heard of."""

    since: Mapping[str, float] = field(default_factory=dict)
    revoked: Collection[str] = ()


def members_of(nodes: Iterable[EnrolledNode]) -> MembershipHistory:
    enrolled = list(nodes)
    return MembershipHistory({node.node_id: node.enrolled_at for node in enrolled
                              if node.access == "approved"},
                             {node.node_id for node in enrolled if node.access == "revoked"})


@dataclass(eq=False)
class RehearsalSource(ABC):
    """Past values for a rule. `reads_s`: the step of the values it reads. `hours`: GPU-hours that a
    target had held within the span, by row and time of an action."""

    spans: RuleHistory
    fleet: Fleet
    ready: CompiledRule
    members: MembershipHistory = MembershipHistory()

    def __post_init__(self) -> None:
        self._names = sorted(self.ready.names)
        self._gpus: dict[Name, int] = {}
        self._nodes: dict[str, int] = {}
        self.step_s = self.ready.period_s
        self.reads_s = {"node": 1, "fleet": 1}.get(self.ready.rule.of, self.step_s)
        self.hours: dict[tuple[int, float], float] = {}
        self._refuse()

    @property
    def off_by_s(self) -> int:
        """Return by how much life may differ; 0: it is the same computation."""
        return 1 if self.step_s == 1 else 0

    def _refuse(self) -> None:
        of = self.ready.rule.of
        odd = " and ".join(unrecorded(of, self._names))
        if odd:
            whose = {"gpu": "", "owner": " of an owner", "fleet": " of the fleet"}
            raise CannotRehearseError(
                f"history does not keep {odd}{whose.get(of, f' of a {of}')}: this rule can only be "
                f"watched live{' (mode observe)' if of == 'gpu' else ''}")

    @abstractmethod
    def stretches(self, start: int, end: int) -> Iterator[RehearsalChunk]: ...

    def settle(self, alerts: Iterable[RehearsedAlert]) -> None:
        """Note what is needed of a chunk after it was rehearsed."""
        return

    def refusal(self, row: int, do: Do, at: float) -> Refusal | None:
        """Return why this could not have been done to it then, as far as that is known."""
        return None

    @abstractmethod
    def name(self, row: int) -> AlertTarget: ...

    # -- pieces of a span

    @property
    def _size(self) -> int:
        return max(1, len(self.fleet))

    def _by_hours(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        return pieces(start, end, max(3_600, min(
            86_400, MOST_CELLS // self._size * self.reads_s // 3_600 * 3_600)))

    def _by_seconds(self, why: str, start: int, end: int) -> Sequence[tuple[int, int]]:
        """Return the pieces for a rule that reads every second of all GPUs."""
        self._refuse_too_long(why, end - start)
        return pieces(start, end, min(3_600, max(1, CELLS_OF_SECONDS // self._size
                                                 // SECONDS_AT_ONCE) * SECONDS_AT_ONCE))

    def _refuse_too_long(self, why: str, span_s: int) -> None:
        if self._size * span_s > MOST_SECONDS:
            raise CannotRehearseError(f"{why}: over {self._size:,} GPUs at most "
                                      f"{MOST_SECONDS // self._size // 3_600} hours at once")

    # -- as the fleet is now: where a GPU is and what it is does not change much

    def _slots(self, gpus: Iterable[Name]) -> list[int | None]:
        return [self.fleet.slot_on(node_id, gpu) for gpu, node_id in gpus]

    def _is_board(self, slot: int | None) -> bool:
        return slot is None or bool(self.fleet.parent[slot] == NO_PARENT)

    def _host(self, node_id: str) -> str:
        node = self.fleet.nodes.get(node_id)
        return node_id if node is None else node.hello.host
