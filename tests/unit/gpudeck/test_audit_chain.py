"""The hash chain: any change of the records is found, and the first broken one is named."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpudeck.audit.chain import AuditChainLink, chain, link, verify
from gpudeck.audit.file import AuditFile
from gpudeck.errors import CommandError

MUTATIONS = 10_000
LENGTH = 60
Mutation = Callable[[random.Random, list[AuditChainLink]], tuple[list[AuditChainLink], int]]


def make_links(rng: random.Random, length: int = LENGTH) -> list[AuditChainLink]:
    return list(chain({"at": rng.random(), "kind": rng.choice("abc"), "n": at, "why": "\u00e9\n"}
                      for at in range(length)))


def edit(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    """Change one character, anywhere in the text or in the hash."""
    at = rng.randrange(len(links))
    name = rng.choice(("body", "hash"))
    text = getattr(links[at], name)
    place = rng.randrange(len(text))
    put = rng.choice([char for char in "0123456789abcdef{}" if char != text[place]])
    edited = text[:place] + put + text[place + 1:]
    return [*links[:at], replace(links[at], **{name: edited}), *links[at + 1:]], at + 1


def drop(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    at = rng.randrange(len(links) - 1)
    return links[:at] + links[at + 1:], at + 1


def drop_and_renumber(rng: random.Random,
                      links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    at = rng.randrange(len(links) - 1)
    later = [replace(record, seq=record.seq - 1) for record in links[at + 1:]]
    return links[:at] + later, at + 1


def swap(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    one, other = sorted(rng.sample(range(len(links)), 2))
    swapped = list(links)
    swapped[one] = replace(links[other], seq=one + 1)
    swapped[other] = replace(links[one], seq=other + 1)
    return swapped, one + 1


def insert(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    """Insert a record with a right hash; the one after it does not know it."""
    at = rng.randrange(1, len(links))
    new = link(at + 1, links[at - 1].hash, {"kind": "planted", "n": rng.random()})
    later = [replace(record, seq=record.seq + 1) for record in links[at:]]
    return [*links[:at], new, *later], at + 2


def repeat(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    at = rng.randrange(len(links))
    return [*links[:at + 1], *links[at:]], at + 2


def cut_tail(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    at = rng.randrange(len(links))
    return links[:at], at + 1


def rewrite(rng: random.Random, links: list[AuditChainLink]) -> tuple[list[AuditChainLink], int]:
    """Rewrite all records from one on, with right hashes."""
    at = rng.randrange(len(links))
    rewritten = links[:at]
    for seq in range(at + 1, len(links) + 1):
        before = rewritten[-1].hash if rewritten else "0" * 64
        rewritten.append(link(seq, before, {"kind": "invented", "n": rng.random()}))
    return rewritten, at + 1


ALONE = (edit, drop, drop_and_renumber, swap, insert, repeat)
WITH_A_COPY = (*ALONE, cut_tail, rewrite)


def test_what_was_not_touched_holds() -> None:
    links = make_links(random.Random(random.random()))
    assert verify(links) is None
    assert verify(links, {LENGTH: links[-1].hash, 1: links[0].hash}, copy=links) is None
    assert verify(links[20:], start=links[19], copy=links) is None
    assert verify([]) is None


def test_each_of_10_000_changes_is_found_and_named() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for number in range(MUTATIONS):
        links = make_links(rng)
        mutation = WITH_A_COPY[number % len(WITH_A_COPY)]
        changed, first = mutation(rng, links)
        # A copy may begin late; what it does not hold is then vouched for by a head alone.
        copy = links[rng.randrange(first):] if mutation in (cut_tail, rewrite) else ()
        fault = verify(changed, copy=copy)
        assert fault is not None, (seed, number, mutation.__name__)
        assert fault.seq == first, (seed, number, mutation.__name__, fault)
        assert str(first) in fault.sentence


def test_without_a_head_elsewhere_a_cut_or_a_new_suffix_would_pass() -> None:
    """The control: why heads are kept by others."""
    rng = random.Random(random.random())
    links = make_links(rng)
    for mutation in (cut_tail, rewrite):
        changed, _ = mutation(rng, links)
        assert verify(changed) is None


@pytest.mark.parametrize("mutation", [cut_tail, rewrite])
def test_a_head_kept_elsewhere_finds_what_the_chain_cannot(mutation: Mutation) -> None:
    for _ in range(300):
        rng = random.Random(random.random())
        links = make_links(rng)
        changed, first = mutation(rng, links)
        head_seq = rng.randint(first, len(links))
        fault = verify(changed, {head_seq: links[head_seq - 1].hash})
        assert fault is not None
        assert fault.seq == (first if mutation is cut_tail else head_seq)
        assert verify(changed, {at: links[at - 1].hash for at in range(1, first)}) is None


def test_a_state_without_an_audit_log_is_said(tmp_path: Path) -> None:
    """Found by examiners: "cannot use state.db: no such table: vouched"."""
    (tmp_path / "state.db").touch()
    with pytest.raises(CommandError, match="has no audit log in it"):
        AuditFile(tmp_path)
