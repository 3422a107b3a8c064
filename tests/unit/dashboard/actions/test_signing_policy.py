"""Commands that the signer signs, the fence of epochs, and the sentences about a command."""

import os
import re
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from dashboard.actions.commander import new_id
from dashboard.actions.lifecycle import CommandRecord
from dashboard.actions.signing_policy import HOUR_S, RecentSignings, SigningBudget, SigningPolicy
from dashboard.fleet.epoch_fence import MAX_EPOCH_JUMP, SETTLING_S, EpochFence
from gpudeck.contract.action_table import Action
from gpudeck.contract.actions import (
    COMMAND_LASTS_S,
    LIFE,
    PREVIEW_LASTS_S,
    ActionParams,
    ActionVerification,
    Command,
    CommandActor,
    Preview,
    ProcessIdentity,
    Refusal,
    Victim,
)
from gpudeck.words.commands import sentence

NOW, MONO, EPOCH = 1_700_000_000.0, 500.0, 7
NODE = "n1"
VICTIM = Victim(ProcessIdentity(100, 5, 1_000, None, None, None), "python", "alice")


def signing(fleet: int = 100, node: int = 50) -> SigningPolicy:
    return SigningPolicy(SigningBudget(fleet, node), EPOCH, RecentSignings())


def command(policy: SigningPolicy, node_id: str = NODE, action: Action = "end", at: float = NOW,
            mono: float = MONO) -> Command:
    nonce = os.urandom(32)
    policy.add_nonce(nonce, mono)
    preview = None
    if action not in ("hold", "release"):
        preview = Preview("ask", nonce, node_id, "boot", at, action, ActionParams(), "t", None,  # type: ignore[arg-type]
                          "alice",
                          100.0, None, None, (VICTIM,), ())
    return Command(new_id(at), node_id, policy.epoch, at, at + COMMAND_LASTS_S, nonce, action,
                   CommandActor("person", "ops"), "why", preview)


def code(policy: SigningPolicy, order: Command, is_shown: bool = True, at: float = NOW,
         mono: float = MONO
         ) -> str | None:
    refusal = policy.judge(order, is_shown, at, mono)
    return None if refusal is None else refusal.code


def test_a_command_is_signed_once() -> None:
    policy = signing()
    order = command(policy)
    assert code(policy, order) is None
    assert code(policy, order) == "stale_preview"


@pytest.mark.parametrize("change", [
    {"epoch": EPOCH - 1}, {"epoch": EPOCH + 1}, {"expires_at": NOW + COMMAND_LASTS_S + 0.1},
    {"expires_at": NOW}, {"issued_at": NOW - 60, "expires_at": NOW - 31}, {"preview": None},
    {"action": "pause"}, {"node_id": "n2"}])
def test_what_does_not_fit_is_not_signed(change: dict[str, object]) -> None:
    policy = signing()
    assert code(policy, replace(command(policy), **change)) == "signer"


def test_a_preview_that_its_node_did_not_sign_is_none() -> None:
    policy = signing()
    order = command(policy)
    assert code(policy, order, is_shown=False) == "signer"
    # It was not used up by that.
    assert code(policy, order) is None


def test_a_preview_with_refusals_or_without_victims_is_not_signed() -> None:
    policy = signing()
    for change in ({"refusals": (Refusal("hold", "held"),)}, {"victims": ()},
                   {"nonce": os.urandom(32)}):
        order = command(policy)
        assert order.preview is not None
        assert code(policy, replace(order, preview=replace(order.preview, **change))) == "signer"


def test_nonces_are_our_own_and_grow_old() -> None:
    policy = signing()
    order = command(policy)
    assert code(signing(), order) == "stale_preview"
    assert code(policy, order, mono=MONO + PREVIEW_LASTS_S + 0.1) == "stale_preview"


def test_budgets_per_node_and_fleet() -> None:
    policy = signing(fleet=5, node=2)
    assert [code(policy, command(policy)) for _ in range(3)] == [None, None, "budget"]
    assert [code(policy, command(policy, node)) for node in ("a", "b", "c", "d")] == [
        None, None, None, "budget"]
    # What can be undone is not counted; and an hour later there is room again.
    for action in ("notify", "resume", "hold", "release"):
        assert code(policy, command(policy, action=action)) is None
    later = NOW + HOUR_S + 1
    assert code(policy, command(policy, at=later), at=later) is None
    # A clock that was set back gives nothing back.
    back = later - 10
    assert code(policy, command(policy, at=back), at=back) is None
    assert code(policy, command(policy, at=back), at=back) == "budget"


def test_epochs_rise_and_by_no_more_than_a_backup_explains() -> None:
    policy = signing()
    assert not policy.raise_epoch(EPOCH - 1)
    assert not policy.raise_epoch(EPOCH + MAX_EPOCH_JUMP + 1)
    assert policy.raise_epoch(EPOCH + 3)
    assert policy.epoch == EPOCH + 3


# -- the fence


def test_a_restored_hub_goes_ahead_of_what_nodes_have_seen() -> None:
    fence = EpochFence(5, MONO)
    assert fence.hello("a", 9, MONO) == 10
    assert fence.hello("b", 9, MONO) is None
    assert fence.refusal("b", 2) is None


def test_a_hub_that_was_superseded_stops() -> None:
    fence = EpochFence(5, MONO)
    for node in "abc":
        fence.hello(node, 4, MONO)
    fence.has_issued = True
    assert fence.hello("a", 6, MONO + 1) is None
    # One node alone stops only what is meant for it: it may lie.
    assert fence.refusal("a", 3) is not None
    assert fence.refusal("b", 3) is None
    fence.hello("b", 6, MONO + 2)
    assert fence.refusal("c", 3) is not None
    assert fence.seen == 6


def test_one_that_has_run_for_a_while_does_not_take_over_again() -> None:
    fence = EpochFence(5, MONO)
    fence.hello("a", 4, MONO)
    assert fence.hello("a", 6, MONO + SETTLING_S + 1) is None
    assert fence.refusal("a", 1) is not None


def test_two_copies_that_started_equally_often_are_told_apart() -> None:
    """Two hubs count from the same folder: the second to greet a node goes ahead of the first."""
    fence = EpochFence(5, MONO)
    assert fence.hello("a", 5, MONO) == 6
    assert fence.hello("a", 6, MONO) is None  # it is back, and has that from us
    assert (fence.epoch, fence.refusal("a", 1)) == (6, None)
    busy = EpochFence(5, MONO, has_issued=True)
    assert busy.hello("a", 5, MONO) is None
    assert busy.refusal("a", 1) is not None


def test_no_lie_uses_up_the_epochs() -> None:
    fence = EpochFence(5, MONO)
    assert fence.hello("liar", 2**53, MONO) is None
    assert (fence.epoch, fence.refusal("liar", 1)) == (5, None)


# -- sentences


def sentence_of(state: str, action: str = "end", **more: object) -> str:
    return sentence(CommandRecord("c", action, NODE, "h", CommandActor("person", "ops"), "w", NOW,  # type: ignore[arg-type]
                                  NOW,
                                  NOW + 30, state=state, **more))  # type: ignore[arg-type]


def test_every_outcome_of_every_action_has_a_sentence() -> None:
    yes_no = (True, False, None)
    for state, action in product(LIFE, ("notify", "pause", "resume", "end", "hold", "release")):
        for exited, memory, alive in product(yes_no, repeat=3):
            text = sentence_of(state, action, verified=ActionVerification(
                exited, memory, alive, 3e9, 2e9, () if alive else ("t2",), (7,)))
            assert text[0].isupper()
            assert text.endswith(".")
            assert "None" not in text
            assert ".." not in text
        assert sentence_of(state, action).endswith(".")


@pytest.mark.parametrize(("text", "words"), [
    (sentence_of("done", verified=ActionVerification(True, True, True, 2 * 2**30, 0.0)),
     "Ended: its processes are gone. Its memory was freed (2.0 GiB). Other tasks on its GPUs are "
     "unaffected."),
    (sentence_of("not_effective", verified=ActionVerification(True, False, True, 2**31, 2**31)),
     "Its processes are gone, but their memory has not been freed: the driver or another process "
     "still holds it. 2.0 GiB of its 2.0 GiB did not come back. Other tasks on its GPUs are "
     "unaffected."),
    (sentence_of("done", verified=ActionVerification(True, True, False, None, None, ("t2",))),
     "Ended: its processes are gone. Its memory was freed. 1 other task on its GPUs vanished in "
     "the same moment: look at them."),
    (sentence_of("refused", refusal=Refusal("hold", "all acts here are held")),
     "Refused, nothing was done: all acts here are held."),
    (sentence_of("not_effective", "notify", step="no terminal of theirs is open"),
     "Its owner was not notified, though the node tried: no terminal of theirs is open."),
    (sentence_of("expired"), "Expired, nothing was done: it did not reach the node in time."),
    (sentence_of("acting", step="SIGTERM sent, 12 s left"),
     "The node is ending: SIGTERM sent, 12 s left."),
])
def test_sentences(text: str, words: str) -> None:
    assert text == words


def test_what_was_not_seen_is_never_said_to_be_well() -> None:
    text = sentence_of("done", verified=ActionVerification(True, None, None))
    assert text.count("is not known") == 2
    assert sentence_of("unknown").startswith("Unknown: ")
    alone = sentence_of("done", verified=ActionVerification(True, True, None), bystanders=0)
    assert alone == "Ended: its processes are gone. Its memory was freed."


def test_the_life_in_the_docs_is_the_contract_s() -> None:
    text = (Path(__file__).parents[4] / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| ([a-z_, ]+) \| ([a-z_, ]*) ?\|", text.partition("| state |")[2], re.M)
    documented = {state: tuple(then.replace(" ", "").split(",")) if then.strip() else ()
                  for states, then in rows for state in states.split(", ")}
    assert documented == LIFE
