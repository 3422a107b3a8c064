"""The Quality of service page: what tenants were promised, get, and did not get."""

from typing import Any
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.client.hub import Client
from gpudeck.markup import make

from ..access.policy import Role
from ..insight.core.qos import LASTS_S
from .parts import READ_PAGE, Page, problem
from .reading import Parts, Reading, View, viewer
from .words import age, amount, moment, plural

Item = dict[str, Any]

LABELS = {"gpus": "Too few GPUs", "memory": "Too little memory", "wait": "Waited too long",
          "throttling": "Throttled too much"}
NOT_FOR_ALL = "Promises name tenants and what they hold, so they are visible to operators only."
NOBODY = ("Nothing is promised to anybody. An admin promises a user or a team GPUs, GPU memory, a "
          "longest wait of its claims, or how much its GPUs may be throttled.")
NOT_KNOWN = "not known"
NOT_CHECKED = "Not all promises have been checked yet; the hub checks them every ten seconds."


def frame() -> Component:
    return make("div#qos.advice-page", [
        make("header.advice-head.page-head", [
            make("div", [make("h1", "Quality of service"),
                         make("p#qos-words", "", role="status")]),
            make("div#qos-acts.page-acts", "")]),
        problem("qos"),
        make("p#qos-none.none", "Loading …", role="status"),
        make("ul#qos-place.advice-place"),
        make("section#qos-past.qos-past", [
            make("h2", "Violations"), make("ul#qos-violations.qos-violations")], hidden=True)],
        hidden=True, data_unsettled="")


def answer(client: Client, view: View, now: float) -> Parts:
    person = viewer(client)
    if not person.may(Role.OPERATOR):
        return {"qos-none": NOT_FOR_ALL}
    return qos_parts(client.hub.get("qos"), view.zone, person.may(Role.ADMIN))


def qos_parts(report: Item, zone: str, is_admin: bool) -> Parts:
    """Return the parts of the page. Pure."""
    items, violations = report["items"], report["violations"]
    return {
        "qos-words": broken_words(items),
        "qos-none": None if items else NOBODY,
        "qos-acts": _form_button("Promise …", None) if is_admin else "",
        "qos-place": [_tenant(item, is_admin) for item in items],
        "qos-past": bool(violations),
        "qos-violations": [_violation(violation, zone) for violation in violations]}


def broken_words(items: list[Item]) -> str:
    broken = sum(bool(item["unkept"]) for item in items)
    if not items:
        return ""
    if broken > 0:
        verb = "does" if broken == 1 else "do"
        return f"{plural(broken, 'tenant')} {verb} not get what was promised now."
    return NOT_CHECKED if any(item["waiting"] is None for item in items) else (
        "All promises are kept now.")


def amount_words(kind: str, value: float) -> str:
    """Format an amount of a promise in its unit."""
    if kind == "gpus":
        return plural(value, "GPU")
    if kind == "memory":
        return f"{amount(value, 1)} GiB"
    return age(value) if kind == "wait" else f"{amount(value, 1)} % of the time"


def promise_words(item: Item) -> list[tuple[str, str, str]]:
    """Return kind, name and sentence of what a tenant was promised, and of what it gets."""
    policy, waiting = item["policy"], item["waiting"]
    queue = f", {plural(waiting, 'claim')} waiting" if waiting else ""
    rows = (
        ("gpus", "GPUs", policy["gpus"], "at least {} while it asks for more",
         item["gpus"], f"has {{}}{queue}", NOT_KNOWN),
        ("memory", "Memory", policy["memory_gib"], "at least {} while it asks for more",
         item["memory_gib"], f"has {{}}{queue}", NOT_KNOWN),
        ("wait", "Wait", policy["wait_s"], "maximum {}", item["longest_wait_s"],
         "the longest waits for {}", NOT_KNOWN if waiting is None else "nothing waits"),
        ("throttling", "Throttling", policy["throttled_pct"], "maximum {}, over 10 min",
         item["throttled_pct"], "{} now", NOT_KNOWN))
    return [(kind, name, f"{promise.format(amount_words(kind, promised))}; "
             f"{otherwise if value is None else now.format(amount_words(kind, value))}.")
            for kind, name, promised, promise, value, now, otherwise in rows
            if promised is not None]


def week_words(week: Item, is_pending: bool) -> str:
    """Return how often it was broken. `is_pending`: it is not kept now, which does not count
    yet."""
    count = week["violations"]
    if is_pending:
        now = f"Not kept now, and a violation once that has lasted for {age(LASTS_S)}."
        return f"{now} {week_words(week, False)}" if count else now
    if count == 0:
        return "No violation seen in 7 days."
    times = "once" if count == 1 else f"{count} times"
    return f"Broken {times} in 7 days, for {age(week['seconds'])} in total."


def _tenant(item: Item, is_admin: bool) -> Component:
    tenant = item["policy"]["tenant"]
    count = sum(week["violations"] for week in item["week"])
    weeks = {week["kind"]: week for week in item["week"]}
    pills = [part for kind in item["unkept"] for part in (" ", make("span.pill.lost",
                                                                  LABELS[kind]))]
    return make("li.advice-one", [
        make("div.advice-hours", [
            make("strong", str(count)),
            make("span", "violation in 7 days" if count == 1 else "violations in 7 days")]),
        make("div", [
            make("h2", [tenant_words(tenant), *pills]),
            make("dl", [make("div", [make("dt", name), make("dd", " ".join(
                (words, week_words(weeks[kind], kind in item["pending"]))))])
                        for kind, name, words in promise_words(item)]),
            make("p.advice-acts", [_form_button("Change …", item["policy"]),
                                   _remove_button(tenant)]) if is_admin else None])],
        data_key=tenant)


def tenant_words(tenant: str) -> str:
    return tenant.replace(":", " ", 1)


def _form_button(words: str, policy: Item | None) -> Component:
    """Return the button that makes a promise, or changes the one to a tenant."""
    values = policy or dict.fromkeys(("gpus", "memory_gib", "wait_s", "throttled_pct"))
    wait_min = None if values["wait_s"] is None else round(values["wait_s"] / 60, 3)
    fields = [
        _number("gpus", "GPUs", values["gpus"], "At least, while it asks for more.",
                {"step": "1", "min": "1"}),
        _number("memory", "GPU memory, in GiB", values["memory_gib"],
                "At least, while it asks for more.", {"min": "0.001"}),
        _number("wait", "Longest wait, in minutes", wait_min, "Of one of its claims.",
                {"min": "1"}) | {"type": "minutes"},
        _number("throttled", "Most throttling, in %", values["throttled_pct"],
                "By heat or the power brake, over ten minutes.", {"min": "0", "max": "100"})]
    if policy is None:
        fields.insert(0, {
            "name": "tenant", "label": "Tenant", "hint": "user:NAME or team:NAME",
            "traits": {"required": "", "pattern": "(user|team):.+", "maxlength": "140"}})
    return make(f"button.button{'' if policy is None else '.small'}", words, data_form={
        "title": "Promise to a tenant" if policy is None else
            f"Change what {tenant_words(policy['tenant'])} was promised",
        "lead": ["Nothing is done by this: it is watched, and counted where it is not kept."],
        "verb": "Save", "fields": fields, "method": "PUT",
        "path": "qos/$tenant" if policy is None else _path(policy["tenant"]),
        "body": {"gpus": "$gpus", "memory_gib": "$memory", "wait_s": "$wait",
                 "throttled_pct": "$throttled"}})


def _number(name: str, label: str, value: float | None, hint: str, traits: dict[str, str]
            ) -> dict[str, Any]:
    return {"name": name, "label": label, "type": "number", "value": value, "hint": hint,
            "traits": traits}


def _remove_button(tenant: str) -> Component:
    return make("button.button.small", "Remove …", data_form={
        "title": f"Promise nothing to {tenant_words(tenant)} any longer", "verb": "Remove",
        "lead": ["Its violations so far are kept for 91 days."], "tone": "bad",
        "method": "DELETE", "path": _path(tenant)})


def _path(tenant: str) -> str:
    return f"qos/{quote(tenant, safe='')}"


def _violation(violation: Item, zone: str) -> Component:
    kind, began_at, ended_at = (violation[name] for name in ("kind", "began_at", "ended_at"))
    lasting = "continues" if ended_at is None else f"for {age(ended_at - began_at)}"
    return make("li", [
        make("time", moment(began_at, zone)), f" {tenant_words(violation['tenant'])}: ",
        make("span", f"{LABELS[kind]}: {amount_words(kind, violation['worst'])}, promised "
             f"{amount_words(kind, violation['promised'])}; {lasting}")])


PAGE = Page(
    "qos", "QoS", READ_PAGE, frame,
    "What each user or team was promised (GPUs, memory, longest wait, most throttling), what it "
    "gets now, and how often that was not kept in the last seven days.", (), "/qos",
    ("y", "quality of service"), reading=Reading(View, answer, 10.0, "quality of service"))
