"""What the signer signs, and what never: the second of three layers (docs/security.md).

It is between the key and the hub's web process, which may be in an attacker's hands. It trusts
nothing that this process says about itself, only what a node has signed and what it counts itself.
"""

from collections import deque
from dataclasses import dataclass, field

from gpudeck.contract.action_table import ENDS_WORK, HARMFUL
from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    PREVIEW_LASTS_S,
    SKEW_MAX_S,
    Command,
    Preview,
    Refusal,
)
from gpudeck.contract.desired_state import DesiredState

from ..fleet.epoch_fence import MAX_EPOCH_JUMP

HOUR_S = 3_600.0
MAX_NONCES = 10_000


@dataclass(frozen=True, slots=True)
class SigningBudget:
    """How many harmful actions may be signed within any hour: those that cannot be undone, and
    pauses, since they stop somebody's work."""

    fleet: int = 60
    node: int = 6


@dataclass(slots=True)
class RecentSignings:
    """Times of signatures in the last hour, by node. UTC: they outlive a restart."""

    at: deque[tuple[float, str]] = field(default_factory=deque)

    def forget(self, now: float) -> None:
        # A clock that was set back must not free any budget: what lies ahead still counts.
        while self.at and self.at[0][0] <= now - HOUR_S:
            self.at.popleft()

    def of(self, node_id: str) -> int:
        return sum(node == node_id for _, node in self.at)


class SigningPolicy:
    def __init__(self, budget: SigningBudget, epoch: int, signings: RecentSignings) -> None:
        self.budget = budget
        self.epoch = epoch
        self.signings = signings
        self._generation = 0
        self._nonces: dict[bytes, float] = {}  # issued and unused -> monotonic seconds

    def raise_epoch(self, epoch: int) -> bool:
        """Raise the epoch and never lower it, so that nothing signed long ago is of the current
        epoch again."""
        if not self.epoch <= epoch <= self.epoch + MAX_EPOCH_JUMP:
            return False
        self.epoch = epoch
        return True

    def add_nonce(self, nonce: bytes, mono: float) -> None:
        self._drop_old(mono)
        while len(self._nonces) >= MAX_NONCES:
            del self._nonces[next(iter(self._nonces))]
        self._nonces[nonce] = mono

    def _drop_old(self, mono: float) -> None:
        for nonce, issued_mono in list(self._nonces.items()):
            if mono - issued_mono <= PREVIEW_LASTS_S:
                return
            del self._nonces[nonce]

    def judge(self, command: Command, is_shown: bool, now: float, mono: float) -> Refusal | None:
        """Judge a command; None: sign it, and its nonce is used up. `is_shown`: the node of this
        command has signed the preview in it."""
        self._drop_old(mono)
        self.signings.forget(now)
        why = self._flaw(command, now) or self._nonce_flaw(command)
        if why is None:
            why = (_hold_flaw(command) if command.preview is None
                   else _preview_flaw(command, command.preview, is_shown))
        why = why or self._budget_flaw(command)
        if why is not None:
            return why
        del self._nonces[command.nonce]
        if command.action in HARMFUL:
            self.signings.at.append((now, command.node_id))
        return None

    def judge_desired(self, desired: DesiredState, now: float) -> Refusal | None:
        """Judge desired state; None: sign it. It has no victim that a node could have shown: the
        node itself limits what it may do. Older generations are not signed again, so that a removed
        quota does not come back."""
        if desired.epoch != self.epoch:
            return _no("its epoch is not the one that is signed for")
        if abs(desired.issued_at - now) > SKEW_MAX_S:
            return _no("it was not issued now")
        if desired.generation < self._generation:
            return _no(f"generation {self._generation} was signed already")
        self._generation = desired.generation
        return None

    def _flaw(self, command: Command, now: float) -> Refusal | None:
        if command.epoch != self.epoch:
            return _no("its epoch is not the one that is signed for")
        if not 0 < command.expires_at - command.issued_at <= COMMAND_LASTS_S:
            return _no(f"a command lasts {COMMAND_LASTS_S:.0f} s at most")
        if abs(command.issued_at - now) > SKEW_MAX_S:
            return _no("it was not issued now")
        return None

    def _nonce_flaw(self, command: Command) -> Refusal | None:
        if command.nonce not in self._nonces:
            return Refusal("stale_preview", "the signer refused: this was previewed more than "
                           f"{PREVIEW_LASTS_S:.0f} s ago, or the command was given already; "
                           "preview again")
        return None

    def _budget_flaw(self, command: Command) -> Refusal | None:
        if command.action not in HARMFUL:
            return None
        if self.signings.of(command.node_id) >= self.budget.node:
            return Refusal("budget", f"the signer signs {self.budget.node} ends and pauses per "
                           "hour for one node, and they are used up (setting "
                           "signer_ends_per_node_hour)")
        if len(self.signings.at) >= self.budget.fleet:
            return Refusal("budget", f"the signer signs {self.budget.fleet} ends and pauses per "
                           "hour, and they are used up (setting signer_ends_per_hour)")
        return None


def _hold_flaw(command: Command) -> Refusal | None:
    if command.action in ("hold", "release"):
        return None
    return _no("nothing is signed without a node's preview")


def _preview_flaw(command: Command, preview: Preview, is_shown: bool) -> Refusal | None:
    if not is_shown or preview.node_id != command.node_id:
        return _no("this preview is not signed by the node that it is for")
    if preview.nonce != command.nonce:
        return _no("this preview is for another request")
    if preview.action != command.action:
        return _no("it is for another action than was previewed")
    if preview.refusals:
        return _no("the node has already refused it: " + preview.refusals[0].sentence)
    if command.action in HARMFUL and command.action not in ENDS_WORK and not preview.victims:
        return _no("the preview has no targets")
    return None


def _no(sentence: str) -> Refusal:
    return Refusal("signer", f"the signer refused: {sentence}"[:1_024])
