"""A Quota: how much an Owner may hold, where, and what is done about more than that. Pure.

It is written by hand or by the form, parsed here with all errors reported at once, and travels to
the nodes as it is. Who is over one is computed by gpudeck/contract/quota_usage.py.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gpudeck.contract.ladder import MAX_RUNGS, LadderRung, order_flaw
from gpudeck.contract.message_limits import Amount, Text, Word
from gpudeck.language.sizes import parse_size
from gpudeck.language.times import parse_span, short_number, span_words

Limit = Literal["gpus", "mem_bytes", "gpu_hours", "max_age_s"]
LIMITS: tuple[Limit, ...] = ("gpus", "mem_bytes", "gpu_hours", "max_age_s")
QuotaMode = Literal["observe", "warn", "act"]
QUOTA_MODES: tuple[QuotaMode, ...] = ("observe", "warn", "act")
Per = Literal["day", "week"]
PER_S: dict[Per, float] = {"day": 86_400.0, "week": 604_800.0}
Counted = Literal["each", "together"]
Offline = Literal["wait", "allow"]

QUOTA_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
MAX_QUOTAS = 500
END_AFTER_S = 60.0  # at least, after the step before
# A pod, a Slurm job or a container is more specific than its user, and a user than a group.
SUBJECTS: dict[str, int] = {"container": 6, "slurm": 5, "k8s": 4, "user": 3, "group": 2, "*": 1}
SCOPES: dict[str, int] = {"gpu": 4, "node": 3, "group": 2, "fleet": 1}
# History knows which user used the hours, not in which container.
HOURS_OF = ("user", "group", "*")

REQUIRED = {"id": "x", "subject": "*"}  # with placeholders, so that the rest can be checked
# Expected content of a field, for one of the wrong type.
HOW = {
    "id": "1 to 64 of a-z 0-9 and -, beginning with a letter or a digit",
    "subject": "the subject: user:NAME, group:NAME, container:NAME, slurm:JOB, k8s:NAMESPACE, "
               "or * for everyone",
    "scope": "fleet, group:NAME, node:NAME or gpu:UUID", "because": "a text, not too long",
    "gpus": "a whole number, 0 or more; nothing limits none", "priority": "a whole number, 0 to 4",
    "mem_bytes": "a size, such as 40GiB, and 8 PiB at most; nothing limits none",
    "gpu_hours": "a number, 0 or more; nothing limits none",
    "max_age_s": "a span of time, such as 12h; nothing limits none", "per": "day or week",
    "count": "each or together", "mode": "observe, warn or act", "offline": "wait",
    "ladder": f"1 to {MAX_RUNGS} steps, each with do (tell, pause or end) and after_s",
}

DEFAULT_LADDER: tuple[LadderRung, ...] = (
    LadderRung("tell"), LadderRung("tell", 600.0), LadderRung("end", 600.0))


class Quota(Struct, frozen=True):
    """A limit on what owners may hold. `count` each: every owner that it matches by themselves;
    together: all of them in one sum. None: not limited. A Quota without any limit only gives a
    priority: 4 goes first."""

    id: Word
    subject: Word
    scope: Word = "fleet"
    gpus: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    mem_bytes: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    gpu_hours: Amount | None = None
    per: Per = "day"
    max_age_s: Amount | None = None
    count: Counted = "each"
    priority: Annotated[int, Meta(ge=0, le=4)] = 2
    mode: QuotaMode = "observe"
    ladder: Annotated[tuple[LadderRung, ...],
                      Meta(min_length=1, max_length=MAX_RUNGS)] = DEFAULT_LADDER
    offline: Offline = "wait"  # `allow` is of before: no node ends anything by itself now
    because: Text = ""

    @property
    def subject_kind(self) -> str:
        return self.subject.partition(":")[0]

    @property
    def subject_name(self) -> str:
        return self.subject.partition(":")[2]

    @property
    def scope_kind(self) -> str:
        return self.scope.partition(":")[0]

    @property
    def scope_name(self) -> str:
        return self.scope.partition(":")[2]

    def limit(self, limit: Limit) -> float | None:
        value: float | None = getattr(self, limit)
        return value

    @property
    def limits(self) -> tuple[Limit, ...]:
        return tuple(limit for limit in LIMITS if self.limit(limit) is not None)

    @property
    def rungs(self) -> tuple[LadderRung, ...]:
        """Rungs that its mode permits: in any mode but `act`, only those that notify."""
        return self.ladder if self.mode == "act" else tuple(
            rung for rung in self.ladder if rung.do == "tell")

    @property
    def rank(self) -> tuple[int, int, int]:
        """Rank of the quota: the most specific one has the highest."""
        is_part = self.subject_kind == "k8s" and "/" in self.subject_name
        return SUBJECTS[self.subject_kind], int(is_part), SCOPES[self.scope_kind]


class QuotaProblem(Struct, frozen=True):
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidQuotaError(ValueError):
    def __init__(self, problems: list[QuotaProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def read(data: Any, end_after_s: float = END_AFTER_S) -> Quota:
    """Read a quota from parsed JSON or YAML; sizes and spans may be written as `40GiB` and `12h`.
    Raises InvalidQuotaError with all problems."""
    if not isinstance(data, Mapping):
        raise InvalidQuotaError([QuotaProblem("quota", "is not a table of fields")])
    names = set(Quota.__struct_fields__)
    problems = [QuotaProblem(str(name)[:64], f"there is no such field; there are "
                                             f"{', '.join(Quota.__struct_fields__)}")
                for name in data if name not in names]
    fields = {str(name): value for name, value in data.items() if name in names}
    problems += list(_numbers(fields))
    quota, wrong = _converted(fields)
    problems += wrong
    problems += flaws(quota, end_after_s)
    if problems:
        raise InvalidQuotaError(problems)
    return quota


def _converted(fields: dict[str, Any]) -> tuple[Quota, list[QuotaProblem]]:
    """Convert the fields; one of the wrong type is reported and dropped, so that the rest is
    checked too."""
    candidate: dict[str, Any] = REQUIRED | fields
    problems = [QuotaProblem(name, "is needed") for name in REQUIRED if name not in fields]
    while True:
        try:
            return msgspec.convert(candidate, Quota), problems
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$.")
            field = path.rstrip("`") or "quota"
            name = re.split(r"[.\[]", field)[0]
            problems.append(QuotaProblem(field, HOW.get(name, message)))
            if name not in fields:
                raise InvalidQuotaError(problems) from None
            fields = {other: value for other, value in fields.items() if other != name}
            candidate = REQUIRED | fields


def _numbers(fields: dict[str, Any]) -> Iterator[QuotaProblem]:
    """Parse sizes and spans that are text, in place."""
    for field, parse in (("mem_bytes", parse_size), ("max_age_s", parse_span)):
        if isinstance(fields.get(field), str):
            try:
                fields[field] = parse(fields[field])
            except ValueError as error:
                fields[field] = None
                yield QuotaProblem(field, str(error))
    for step in fields["ladder"] if isinstance(fields.get("ladder"), list) else ():
        if isinstance(step, dict) and isinstance(step.get("after_s"), str):
            try:
                step["after_s"] = parse_span(step["after_s"])
            except ValueError as error:
                step["after_s"] = 0.0
                yield QuotaProblem("ladder", str(error))


def flaws(quota: Quota, end_after_s: float = END_AFTER_S) -> list[QuotaProblem]:
    of_id = () if QUOTA_ID.fullmatch(quota.id) else (("id", HOW["id"]),)
    return [QuotaProblem(field, message) for field, message in (
        *of_id, *_offline_flaws(quota), *_subject_flaws(quota), *_scope_flaws(quota),
        *_limit_flaws(quota), *_ladder_flaws(quota, end_after_s))]


def _offline_flaws(quota: Quota) -> Iterator[tuple[str, str]]:
    if quota.offline != "wait":
        yield "offline", "a node without its hub notifies owners and ends nothing; leave this out"


def _subject_flaws(quota: Quota) -> Iterator[tuple[str, str]]:
    kind, name = quota.subject_kind, quota.subject_name
    if quota.subject == "*":
        return
    parts = name.split("/") if kind == "k8s" else [name]
    if kind not in SUBJECTS or kind == "*" or not name.isprintable() or " " in name or (
            len(parts) > 2 or not all(parts)):
        is_name = bool(re.fullmatch(r"[\w.-]{1,80}", quota.subject)) and kind not in SUBJECTS
        hint = f"did you mean user:{quota.subject}? Or write" if is_name else "write user:NAME,"
        yield "subject", (f"unknown subject {quota.subject[:80]!r}: {hint} group:NAME, "
                          "container:NAME, slurm:JOB, k8s:NAMESPACE, k8s:NAMESPACE/POD, or * for "
                          "everyone")
    elif "*" in name:
        yield "subject", (f"{name[:80]!r} would be nobody's name: a quota is of one by its name, "
                          "or of everyone, which is * alone")


def _scope_flaws(quota: Quota) -> Iterator[tuple[str, str]]:
    kind, name = quota.scope_kind, quota.scope_name
    if quota.scope == "fleet":
        return
    if kind not in SCOPES or kind == "fleet" or not name or not name.isprintable() or " " in name:
        yield "scope", (f"{quota.scope[:80]!r} is not part of the fleet: write fleet, group:NAME, "
                        "node:NAME or gpu:UUID")


def _limit_flaws(quota: Quota) -> Iterator[tuple[str, str]]:
    if not quota.limits and quota.mode != "observe":
        yield "mode", (f"{quota.mode} needs a limit: set gpus, mem_bytes, gpu_hours or max_age_s; "
                       "without one it only gives a priority")
    if quota.gpu_hours is not None and quota.subject_kind in {*SUBJECTS} - {*HOURS_OF}:
        yield "gpu_hours", ("GPU-hours are known per user: use user:, group: or * as the subject, "
                            "or limit gpus instead")
    if quota.max_age_s is not None and quota.count == "together":
        yield "max_age_s", "an age is of one task: there is no sum of it; write count: each"
    if quota.scope_kind == "gpu" and quota.gpus is not None and quota.gpus > 1:
        yield "gpus", "a single GPU is the scope: 0 keeps them off it, 1 limits nothing"


def _ladder_flaws(quota: Quota, end_after_s: float) -> Iterator[tuple[str, str]]:
    does = [rung.do for rung in quota.ladder]
    if does[0] != "tell":
        yield "ladder", "must begin with do: tell, to notify the owner first"
    if flaw := order_flaw(does, ("tell", "pause", "end")):
        yield "ladder", flaw
    if other := {"limit", "suspend"} & {*does}:
        yield "ladder", f"{min(other)} is no step of quotas: a quota notifies, pauses and ends"
    if quota.mode == "act" and {*does} == {"tell"}:
        yield "ladder", ("only notifies, but mode act must end tasks: add a step do: end, "
                         "or use mode: warn")
    if any(rung.do == "end" and rung.after_s < end_after_s for rung in quota.ladder):
        yield "ladder", f"end comes at least {end_after_s:.0f} s after the previous step"


# -- in words


def size_words(mem_bytes: float) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if mem_bytes >= size:
            return f"{short_number(mem_bytes / size)} {unit}"
    return f"{mem_bytes:.0f} B"


def amount_words(limit: Limit, amount: float, per: Per = "day") -> str:
    match limit:
        case "gpus":
            return f"{short_number(amount)} {'GPU' if amount == 1 else 'GPUs'}"
        case "mem_bytes":
            return f"{size_words(amount)} of memory"
        case "gpu_hours":
            return f"{short_number(amount)} GPU-hours per {per}"
        case "max_age_s":
            return f"an age of {span_words(amount)}"


def subject_words(quota: Quota) -> str:
    kind, name = quota.subject_kind, quota.subject_name
    match kind:
        case "user":
            return name
        case "group":
            return (f"each member of {name}" if quota.count == "each" else
                    f"the group {name} together")
        case "*":
            return "each owner" if quota.count == "each" else "everyone together"
        case "k8s":
            return f"the {'pod' if '/' in name else 'namespace'} {name}"
        case _:
            return f"the {'container' if kind == 'container' else 'Slurm job'} {name}"


def scope_words(quota: Quota) -> str:
    name = quota.scope_name
    return {"fleet": "on the whole fleet", "group": f"on the nodes of {name}",
            "node": f"on {name}", "gpu": f"on the GPU {name}"}[quota.scope_kind]


def meaning(quota: Quota) -> str:
    """Return one sentence: who may hold what, where."""
    amounts = [amount_words(limit, quota.limit(limit) or 0.0, quota.per) for limit in quota.limits
               if limit != "max_age_s"]
    parts = [f"hold {' and '.join(amounts)}"] if amounts else []
    if quota.max_age_s is not None:
        parts.append(f"run a task for {span_words(quota.max_age_s)}")
    what = " and ".join(parts) or "hold any amount"
    return f"{subject_words(quota)} may {what} {scope_words(quota)}"
