"""Sentences about records of an Audit, the hub's or a node's, for people. Pure."""

from typing import Any

import msgspec

from gpudeck.audit.chain import AuditChainLink

Body = dict[str, Any]
SPOILED = "this record was altered and cannot be read"


def content(link: AuditChainLink) -> Body | None:
    """Return the record, or None if it was altered."""
    try:
        return msgspec.json.decode(link.body, type=Body)
    except msgspec.MsgspecError:
        return None


def word(body: Body, name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None


def actor_of(body: Body) -> str | None:
    """Return the actor's name. A node's records carry the whole Asker."""
    asker = body.get("asker")
    asker_name = word(asker, "name") if isinstance(asker, dict) else None
    return word(body, "actor") or asker_name


def outcome_of(body: Body) -> str | None:
    return word(body, "outcome") or word(body, "state")


# For records without a sentence: kind and action -> what happened.
SENTENCES = {
    ("user", "add"): "{actor} added {person} as {role}",
    ("user", "change"): "{actor} changed {person}",
    ("user", "remove"): "{actor} removed {person}",
    ("user", "reset_password"): "{actor} made {person} choose a new password",
    ("user", "link"): "{actor} created a sign-in link for {person}",
    ("session", "end"): "{actor} ended a session of {person}",
    ("session", "sign_out"): "{actor} signed out",
    ("session", "sign_out_everywhere"): "{actor} signed out everywhere",
    ("token", "add"): "{actor} created the API token {name} with the role {role}",
    ("token", "remove"): "{actor} revoked the API token {token}",
    ("enrolment", "add"): "{actor} created an enrolment for a new node",
    ("enrolment", "withdraw"): "{actor} withdrew the enrolment {enrolment}",
    ("node", "enrol"): "{host} enrolled (token by {by})",
    ("node", "approve"): "{actor} approved {host}",
    ("node", "revoke"): "{actor} revoked {host}",
    ("node", "group"): "{actor} moved {host} from the group {from} to {to}",
    ("address", "replace"): "{actor} changed the e-mail addresses of task owners",
    ("address", "set"): "{actor} changed the e-mail address of {unix_name}",
    ("address", "remove"): "{actor} removed the e-mail address of {unix_name}",
    ("rule", "put"): "{actor} saved the rule {rule}, in {mode}",
    ("rule", "mode"): "{actor} moved the rule {rule} from {from} to {to}",
    ("rule", "remove"): "{actor} removed the rule {rule}",
    ("backtest", "begin"): "{actor} started a rehearsal of the rule {rule}",
    ("backtest", "approve"): "{actor} approved the rehearsal {backtest} of the rule {rule}",
    ("silence", "silence"): "{actor} silenced {what}: {because}",
    ("silence", "end silence"): "{actor} ended the silence of {what}",
    ("receiver", "add"): "{actor} added the receiver {name} ({kind})",
    ("receiver", "change"): "{actor} changed the receiver {name} ({kind})",
    ("receiver", "remove"): "{actor} removed the receiver {name} ({kind})",
    ("notice", "drop"): "{actor} dropped an undelivered notification",
    ("maintenance", "begin"): "{actor} put {host} into maintenance: {because}",
    ("maintenance", "end"): "{actor} took {host} out of maintenance",
    ("pool", "claim"): "{actor} requested GPUs for {owner}",
    ("qos", "replace"): "{actor} changed the QoS guarantees",
    ("hub", "start"): "the hub started, epoch {epoch}",
}


class _SentenceFields(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def sentence_of(body: Body) -> str:
    own_sentence = word(body, "sentence")
    if own_sentence:
        return own_sentence
    template = SENTENCES.get((word(body, "kind") or "", word(body, "action") or ""))
    if template is not None:
        detail = body.get("detail")
        fields = _SentenceFields(body | (detail if isinstance(detail, dict) else {}))
        suffix = " (refused)" if outcome_of(body) == "refused" else ""
        return template.format_map(fields) + suffix
    refusal = body.get("refusal")
    why = word(refusal, "sentence") if isinstance(refusal, dict) else word(body, "step")
    parts = (actor_of(body), word(body, "kind"), word(body, "action"), outcome_of(body))
    return " ".join(part for part in parts if part) + (f": {why}" if why else "")
