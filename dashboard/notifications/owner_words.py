"""Texts of mails to task owners. Pure; every text from a node becomes a single line."""

from dataclasses import dataclass

from gpudeck.contract.action_table import ROWS, Action
from gpudeck.language.printable import printable

from ..actions.lifecycle import CommandRecord

MAX_LINE = 300


@dataclass(frozen=True, slots=True)
class MailMessage:
    to: str
    subject: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerActionNotification:
    """What an owner has to know about an action."""

    action: Action
    host: str
    task_id: str
    command: str | None
    by: str
    reason: str
    text: str = ""  # of a notification
    grace_s: float = 0.0


ACTED = ("acting", "done", "not_effective", "unkillable")


def is_first_effect(record: CommandRecord) -> bool:
    """Return whether this is the first report that the action has begun. A node may skip steps on
    the way to the outcome; the owner is notified once all the same."""
    before = [moment.state for moment in record.history[:-1]]
    return (ROWS[record.action].mail_subject != "" and record.state in ACTED
            and not any(state in ACTED for state in before))


def mail_of(to: str, notification: OwnerActionNotification, url: str) -> MailMessage:
    row = ROWS[notification.action]
    facts = (("task", notification.task_id), ("command", notification.command or "not known"),
             ("machine", notification.host), ("by", notification.by),
             ("reason", notification.reason or "none was given"))
    lines = [one_line(notification.text), ""] if notification.text else []
    lines += [row.mail_text.format(grace_s=notification.grace_s), ""]
    lines += [f"{name:8} {one_line(value)}" for name, value in facts]
    lines += ["", f"Your work and what was done to it: {url}/work", ""]
    return MailMessage(to, "[gpudeck] " + one_line(row.mail_subject.format(host=notification.host)),
                       "\n".join(lines))


def one_line(text: str) -> str:
    return " ".join(printable(text, " ").split())[:MAX_LINE]


def unreached(owner: str | None, has_mail: bool, has_address: bool) -> str | None:
    """Return why an owner will be notified of an action on terminals only; None: also by mail."""
    only = "The owner is notified on open terminals only; "
    if not has_mail:
        return only + "e-mail is not configured (smtp_host)"
    if owner is None:
        return only + "the owner of this task is unknown"
    if not has_address:
        return only + f"no address of {owner} is known (`gpudeck address set {owner} …`)"
    return None
