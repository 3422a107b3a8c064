"""What the owner of a task is told by mail. Pure; every text from a node is one line of it."""

from dataclasses import dataclass

from gpudeck.action_table import ROWS, Action

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
    """What an owner is to know of an act."""

    action: Action
    host: str
    task_id: str
    command: str | None
    by: str
    reason: str
    text: str = ""  # of a notify
    grace_s: float = 0.0


ACTED = ("acting", "done", "not_effective", "unkillable")


def is_first_of_acting(record: CommandRecord) -> bool:
    """A node may skip steps on the way to the outcome; it is notified once all the same."""
    before = [moment.state for moment in record.history[:-1]]
    return (ROWS[record.action].mail_subject != "" and record.state in ACTED
            and not any(state in ACTED for state in before))


def mail_of(to: str, told: OwnerActionNotification, url: str) -> MailMessage:
    row = ROWS[told.action]
    facts = (("task", told.task_id), ("command", told.command or "not known"),
             ("machine", told.host), ("by", told.by), ("reason", told.reason or "none was given"))
    lines = [one_line(told.text), ""] if told.text else []
    lines += [row.mail_text.format(grace_s=told.grace_s), ""]
    lines += [f"{name:8} {one_line(value)}" for name, value in facts]
    lines += ["", f"Your work and what was done to it: {url}/work", ""]
    return MailMessage(to, "[gpudeck] " + one_line(row.mail_subject.format(host=told.host)),
                       "\n".join(lines))


def one_line(text: str) -> str:
    found = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(found.split())[:MAX_LINE]


def unreached(owner: str | None, has_mail: bool, has_address: bool) -> str | None:
    """Why an owner will hear of an act at terminals only; None: by mail, too."""
    only = "The owner is notified on open terminals only; "
    if not has_mail:
        return only + "e-mail is not configured (smtp_host)"
    if owner is None:
        return only + "the owner of this task is unknown"
    if not has_address:
        return only + f"no address of {owner} is known (`gpudeck address set {owner} …`)"
    return None
