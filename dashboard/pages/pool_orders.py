"""Requests of the pool: GPUs, more time for a lease, its return, a place in the queue given up. The
browser opens the dialogs and sends them (assets/reading/orders.mjs)."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from ..access.policy import Role
from ..pool.views import ClaimView, LeaseView, ModelView
from .forms import Field, Form, choice, moment_field, order, sure, text
from .pool_words import Gpus, leased_words
from .reading import Viewer
from .words import amount, moment, zone_words

LEAD = ("They are leased to you as soon as they are free, and returned if they stay unused. To run "
        "a command right away, use “gpudeck run” on the node.")
WHEN = (("now", "as soon as they are free"), ("at", "at a given time"))
# How the form differs where a time is chosen already (assets/pool/pool.mjs).
RESERVE = {"title": "Reserve GPUs", "verb": "Reserve", "done": "Requested.", "lead": [
    "They are leased to you from that time on, and returned if they stay unused."]}
BODY = {"gpus": "$gpus", "models": "$model", "term_s": "$term_s", "mem_bytes": "$mem_bytes",
        "starts_at": "$at", "share_milli": "$share", "hosts": "$host", "owner": "$owner"}


def request(models: Sequence[ModelView], hosts: Sequence[str], person: Viewer, zone: str,
            now: float) -> Form:
    """Return the order that asks for GPUs."""
    return {"title": "Request GPUs", "verb": "Request", "lead": [LEAD], "is_paired": True,
            "fields": _fields(models, hosts, person, zone, now),
            "done": "You are in the queue.", "undo": {"method": "DELETE", "path": "claims/$id"},
            } | order("POST", "claims", body=BODY)


def _fields(models: Sequence[ModelView], hosts: Sequence[str], person: Viewer, zone: str,
            now: float) -> list[Field]:
    in_an_hour = datetime.fromtimestamp(now + 3_600, ZoneInfo(zone))
    offers = [(model.model, f"{model.model} ({amount(model.free)} free)") for model in models]
    return [
        text("gpus", "GPUs", "1", type="number", min="1", max="1024", step="1", required=""),
        choice("model", "Model", [("", "any"), *offers], "") | {"as": "one"},
        text("term_s", "Duration", "8h", "Such as 30m, 8h or 2d.", required=""),
        text("mem_bytes", "Memory per GPU", "", "Minimum. Empty: any.", placeholder="40G"),
        choice("when", "When", WHEN, "now"),
        moment_field("at", "From", in_an_hour, zone_words(now, zone)) | {"only": {"when": ["at"]}},
        text("share", "Share of a GPU", "", "In percent, of one GPU shared with others. Empty: "
             "the whole GPU.", as_="percent_in_milli", type="number", min="1", max="100",
             placeholder="100"),
        text("host", "Node", "", as_="one", placeholder="any") | {"suggest": list(hosts)},
        *_owner(person)]


def _owner(person: Viewer) -> list[Field]:
    """Return the field for the user who is to hold them; none where only one is possible."""
    names = person.unix_names
    if person.may(Role.OPERATOR) or not names:
        return [text("owner", "User", names[0] if names else "", "A user of the node.",
                     required="")]
    return [choice("owner", "User", [(name, name) for name in names], names[0])] * (len(names) > 1)


def extension(lease: LeaseView, zone: str) -> Form:
    return {"title": f"Extend the lease of {lease.owner} on {lease.host}", "verb": "Extend",
            "lead": [f"Until {moment(lease.until, zone)} now. The node applies the change within "
                     "seconds."],
            "fields": [text("by_s", "Extend by", "2h", "Such as 30m, 2h or 1d.", required="")],
            } | order("POST", "leases", lease.id, "extend", body={"by_s": "$by_s"})


def returning(lease: LeaseView, gpus: Gpus) -> Form:
    return sure(f"Give back {leased_words(lease, gpus)} of {lease.host}?", "Give back",
                "Another user may get them within a second. Processes still running on them "
                "continue without a lease.",
                order("POST", "leases", lease.id, "give-back", body={}))


def withdrawal(claim: ClaimView) -> Form:
    return sure("Leave the queue?", "Leave the queue", f"{claim.owner} asked for {claim.asks}. A "
                "new claim starts at the end of the queue.", order("DELETE", "claims", claim.id))


def offers_request(person: Viewer, is_there: bool) -> bool:
    """Check whether a page offers to request GPUs: the pool is on and has nodes."""
    return is_there and person.may(Role.USER)

