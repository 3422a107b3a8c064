"""Tables of the pool, for the pages Pool, My work and Job: who waits, what is reserved, and who
holds what until when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dash.development.base_component import Component

from gpudeck.markup import make

from ..pool.views import ClaimView, LeaseView
from .forms import row_button
from .item_lists import ItemList, stacked
from .pool_orders import extension, returning, withdrawal
from .pool_words import (
    Gpus,
    command_words,
    leased_words,
    model_of,
    since_words,
    use_words,
    where_words,
    why_words,
)
from .reading import Viewer
from .words import NONE, age, moment, sentence, until_words, when

IDLE_LONG_S = 600.0
SHOWN_STATES = ("active", "offered")  # of a lease, which its use says already
LEAST_S = 10.0  # shorter spans would flicker

Facts = Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class PoolTables:
    """The tables for one viewer, at one moment and in one zone. `gpus`: those that are named."""

    person: Viewer
    gpus: Gpus
    now: float
    zone: str

    def waiting(self, claims: Sequence[ClaimView], label: str = "Waiting claims",
                empty: str = "The queue is empty.") -> Component:
        return ItemList(label, (
            ("Owner", lambda claim: stacked(
                make("strong.name", f"{claim.place}. {claim.owner}"),
                self._small(since_words(claim, self.now), claim.asked_at))),
            ("Request", lambda claim: stacked(
                make("span", claim.asks), make("small", why_words(
                    claim, self.now, self.zone)))),
            ("Starts", _estimate)), _claim_key, empty, self.claim_buttons,
            is_steady=True).draw(claims)

    def reserved(self, claims: Sequence[ClaimView]) -> Component:
        return ItemList("Reservations", (
            ("Owner", lambda claim: make("strong.name", claim.owner)),
            ("Request", lambda claim: stacked(
                make("span", claim.asks), make("small", ", ".join(claim.hosts) or "any node"))),
            ("From", lambda claim: stacked(
                self._until(claim.starts_at or 0.0), make("small", f"for {age(claim.term_s)}")))),
            _claim_key, "", self.claim_buttons).draw(claims)

    def leases(self, leases: Sequence[LeaseView], label: str = "Leases",
               empty: str = "No leases.") -> Component:
        return ItemList(label, (
            ("Owner", lambda lease: stacked(
                make("strong.name", lease.owner), make("small", command_words(lease)))),
            ("GPUs", lambda lease: stacked(
                make("span", where_words(lease, self.gpus)), make("small", " · ".join(filter(
                    None, (model_of(lease, self.gpus), lease.host_words)))))),
            ("Until", self._end), ("Used", self._use)),
            lambda lease: f"{lease.node} {lease.id}", empty, self.lease_buttons,
            is_steady=True).draw(leases)

    def claim_buttons(self, claim: ClaimView) -> list[Component]:
        if not claim.is_here or not self.person.may_change(claim.owner):
            return []
        return [row_button("Withdraw", withdrawal(claim),
                           f"Withdraw the claim of {claim.owner}: {claim.asks}")]

    def lease_buttons(self, lease: LeaseView) -> list[Component]:
        if not self.person.may_change(lease.owner):
            return []
        what = f"{leased_words(lease, self.gpus)} of {lease.host}, leased to {lease.owner}"
        back = [] if lease.is_run else [
            row_button("Give back", returning(lease, self.gpus), f"Give back {what}")]
        return [row_button("Extend", extension(lease, self.zone), f"Extend {what}"), *back]

    def lease_facts(self, lease: LeaseView) -> Facts:
        node = [("Node", lease.host_words)] if lease.host_words else []
        return [("Owner", lease.owner), ("GPUs", where_words(lease, self.gpus)),
                ("Since", moment(lease.since, self.zone)),
                ("Until", moment(lease.until, self.zone)), *node,
                ("Used", use_words(lease, self.now)), ("Command", command_words(lease))]

    def claim_facts(self, claim: ClaimView) -> Facts:
        return [("Owner", claim.owner), ("Request", claim.asks),
                ("Node", ", ".join(claim.hosts) or "any"),
                ("From", moment(claim.starts_at or claim.asked_at, self.zone)),
                ("For", age(claim.term_s)), ("Status", sentence(claim.why))]

    def _small(self, words: str, at: float) -> Component:
        return make("small", words, title=moment(at, self.zone))

    def _until(self, at: float) -> Component:
        return make("span", until_words(at, self.now, self.zone), title=moment(at, self.zone))

    def _end(self, lease: LeaseView) -> Component:
        over_s = self.now - lease.until
        more = make("small", when(lease.until, self.now)) if over_s <= 0 else make(
            "span.pill.stale", f"{age(max(LEAST_S, over_s))} overdue",
            title="Held longer than requested")
        return stacked(self._until(lease.until), more)

    def _use(self, lease: LeaseView) -> list[Component]:
        since = lease.idle_since
        is_long = since is not None and self.now - since > IDLE_LONG_S
        use = make(f"span{'.pool-idle' if is_long else ''}", use_words(lease, self.now),
                   title=None if since is None else f"Since {moment(since, self.zone)}")
        return [use, *([] if lease.state in SHOWN_STATES else [
            make("span.pill.stale", lease.state)])]


def _claim_key(claim: ClaimView) -> str:
    return claim.id


def _estimate(claim: ClaimView) -> Component:
    """Return when a claim starts: from earlier runs, where that is known; otherwise when all that
    runs keeps to its time."""
    most = "" if claim.wait_s is None else f"within {age(max(LEAST_S, claim.wait_s))}"
    words = claim.estimate or most
    return stacked(
        make("span", words or NONE,
             title="If running leases end on time" if words else "No estimate yet"),
        make("small", most) if claim.estimate else None)


def fact_lines(facts: Facts) -> list[Component]:
    """Return the lines of a `dl`."""
    return [make("div", [make("dt", label), make("dd", words)]) for label, words in facts]
