"""The Quotas page: what each quota gives, its usage, and whether it is in force, from data
alone."""

from collections.abc import Callable, Sequence
from urllib.parse import quote

from dash.development.base_component import Component

from gpudeck.markup import make

from .item_lists import Item
from .words import amount, bytes_words, moment, plural, sentence, when

Offers = Callable[[Item], list[Component]]  # buttons for a quota
TONES = {"observe": "", "warn": ".stale", "act": ".lost"}
MEANS = {"ladder": "Ladder (in use)", "memory_limit": "Memory limits of the driver (not used yet)",
         "hami": "HAMi-core (not used yet)",
         "mps": "MPS limits (set on the Node page, new clients only)", "mig": "MIG (not used yet)"}
IN_FORCE = {
    "observe": "usage is counted, no notifications",
    "warn": "owners are notified, no tasks are ended",
    "act": "owners are notified, then tasks are ended; allocations are not prevented"}
NONE_YET = "No quotas yet. An admin can add one."
NONE_OF_ADMIN = (
    "No quotas yet. A quota limits how many GPUs, how much memory or how many GPU-hours an owner "
    "may use. Start with mode “observe”: it shows who would be over, and does nothing else.")


OVER = make("span.pill.lost.over", "over")


def short(number: float) -> str:
    if 0 < number < 1:
        return f"{number:.2g}"
    return amount(number, 0 if number == int(number) else 1)


def _age(seconds: float) -> str:
    return f"{short(seconds / 3_600)} h" if seconds >= 7_200 else (
        f"{amount(seconds / 60)} min")


# Name of each limit, and how its amounts are written.
LIMITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "gpus": ("GPUs", short), "mem_bytes": ("memory", bytes_words),
    "gpu_hours": ("GPU-hours", short), "max_age_s": ("age", _age)}


def unit_of(limit: str, number: float) -> str:
    """Return the name of a limit after an amount of it: `1 GPU`, `2 GPUs`."""
    name, _ = LIMITS[limit]
    return name.removesuffix("s") if number == 1 else name


def limits_of(quota: Item) -> list[str]:
    return [limit for limit in LIMITS if quota[limit] is not None]


def summary(items: Sequence[Item]) -> str:
    """Return how many quotas there are, who is over, and what is not in force."""
    if not items:
        return "No quotas."
    over = len(holders_over(items))
    weak = sum(item["in_force"] < item["wanted"] for item in items)
    idle = sum(item["wanted"] == 0 and bool(limits_of(item["quota"])) for item in items)
    force = f"{amount(weak)} not in force everywhere" if weak else (
        "" if idle == len(items) else "all others in force" if idle else "all in force")
    return " · ".join(filter(None, (
        plural(len(items), "quota"), f"{amount(over)} over" if over else "no one over", force,
        f"{amount(idle)} matching no node" if idle else "")))


def holders_over(items: Sequence[Item]) -> set[str]:
    return {balance["holder"] for item in items for balance in item["balances"]
            if balance["is_over"]}


def cards(items: Sequence[Item], offers: Offers, now: float) -> list[Component]:
    """Return a card for each quota, those that somebody is over first."""
    by_need = sorted(items, key=lambda item: (-item["over"], item["quota"]["id"]))
    return [_card(item, offers(item), now) for item in by_need]


def _card(item: Item, offers: list[Component], now: float) -> Component:
    quota, balances = item["quota"], item["balances"]
    quota_id, mode, reason = quota["id"], quota["mode"], quota["because"]
    uses = make("ul.quota-uses", [_use(balance) for balance in balances],
                aria_label=f"Use of {quota_id}", hidden=not balances)
    unused = make("p.quota-none", "No usage at the moment.",
                  hidden=bool(balances) or not limits_of(quota))
    meaning = meaning_words(quota["subject"], item["meaning"])
    return make("li.quota", [
        make("div.quota-head", [
            make("h2", quota_id), make(f"span.pill{TONES[mode]}", mode),
            make("div.quota-acts", offers)]),
        make("p.quota-meaning", f"{meaning} {sentence(reason)}" if reason else meaning),
        make("details.quota-force", [
            make("summary", _force(item)), make("ul", _nodes(item, now))]),
        uses, unused], id=f"quota-{quota_id}", data_anchor=quota_id)


def past_key(balance: Item) -> str:
    """Return which holder's past of which limit a dialog shows."""
    return f"{balance['limit']} {balance['quota']} {balance['holder']}"


def meaning_words(subject: str, meaning: str) -> str:
    """Format a quota's meaning as a sentence; a user's name stays as it is written."""
    return f"{meaning}." if subject.strip().startswith("user:") else sentence(meaning)


def _force(item: Item) -> str:
    wanted, quota = item["wanted"], item["quota"]
    if not limits_of(quota):
        return f"Gives the priority {quota['priority']}; it limits nothing."
    if wanted == 0:
        return "Applies to no node you can see."
    if item["in_force"] == wanted:
        return f"In force on {'the node' if wanted == 1 else f'all {amount(wanted)} nodes'}"
    return (f"Wanted on {plural(wanted, 'node')}, applied on {amount(item['applied'])}, in force "
            f"on {amount(item['in_force'])}")


def _nodes(item: Item, now: float) -> list[Component]:
    nodes, mode = item["nodes"], item["quota"]["mode"]
    lines = [make("li", [make("strong", node["host"]), f" {_state(node, mode)}: {node['proof']}"])
             for node in nodes]
    if item["wanted"] > len(nodes):
        lines.append(make("li", f"and {amount(item['wanted'] - len(nodes))} more"))
    return [*lines, make("li", f"Set by {item['by']} {when(item['set_at'], now)}; generation "
                         f"{item['generation']}.")]


def _state(node: Item, mode: str) -> str:
    if node["is_in_force"]:
        return f"in force ({IN_FORCE[mode]})"
    return "applied, not in force" if node["is_applied"] else "wanted, not applied"


def _use(balance: Item) -> Component:
    usage = use_words(balance)
    return make("li", [
        make("button.as-link.holder", balance["holder"],
             title="Usage over the last hours, day or week",
             data_set={"past": past_key(balance)}, data_step="false"),
        use_bar(balance),
        make("span.numbers", [usage, OVER] if balance["is_over"] else usage),
        *([make("span.next", _next(balance["offenders"]))] if balance["is_over"] else [])],
        data_key=f"{balance['limit']} {balance['holder']}")


def use_words(balance: Item) -> str:
    limit, most = balance["limit"], balance["most"]
    _, words = LIMITS[limit]
    return (f"{'' if balance['is_whole'] else '≥ '}{words(balance['used'])} of {words(most)} "
            f"{unit_of(limit, most)}")


def use_bar(balance: Item) -> Component:
    name, _ = LIMITS[balance["limit"]]
    used, most, is_over = balance["used"], balance["most"], balance["is_over"]
    top = max(used, most) or 1
    style = {"--used": f"{min(used, most) / top * 100:.6g}%",
             "--most": f"calc({most / top * 100:.6g}% - 2px)"}
    return make(f"div.quota-bar{'.over' if is_over else ''}", [
        make("i"), *([make("u")] if is_over else []), make("b")], role="meter", style=style,
        aria_label=f"{balance['holder']}, {name}", aria_valuemin="0", aria_valuemax=f"{top:.10g}",
        aria_valuenow=f"{used:.10g}", aria_valuetext=balance["sentence"],
        title=balance["sentence"])


def _next(offenders: Sequence[Item]) -> str:
    if not offenders:
        return "None of its tasks may be ended."
    first, rest = offenders[0], len(offenders) - 1
    more = f"; {amount(rest)} more would follow" if rest else ""
    ladder = f" {sentence(first['ladder'])}" if first["ladder"] else ""
    return (f"First to be ended: {first['user'] or '?'} on {first['host']}, priority "
            f"{first['priority']}{more}.{ladder}")


def means(mechanisms: Sequence[Item]) -> list[Component]:
    """Return a line for each means to enforce quotas: where it is there, and why not elsewhere."""
    return [make("li", [make("strong", MEANS.get(mechanism["name"], mechanism["name"])),
                        f": {_reach(mechanism)}"]) for mechanism in mechanisms]


def _reach(mechanism: Item) -> str:
    there = mechanism["there"]
    words = "on no node" if not there else (
        f"on {plural(len(there), 'node')} ({there[0]['host']}: {there[0]['proof']})")
    whys = "; ".join(f"{why} ({plural(count, 'node')})"
                     for why, count in mechanism["not_there"].items())
    return f"{words}; not on others: {whys}." if whys else f"{words}."


def versions(items: Sequence[Item], zone: str) -> list[Component]:
    """Return a line for each version of a quota."""
    return [make("li", [
        f"{item['meaning']} ({item['quota']['mode']})" if item["is_there"] else "removed",
        make("small", f"{item['by']}, {moment(item['set_at'], zone)} · generation "
             f"{item['generation']}{_reason(item)}")]) for item in items]


def _reason(item: Item) -> str:
    reason = item["quota"]["because"]
    return f" · {reason}" if reason and item["is_there"] else ""


def path_of(quota_id: str) -> str:
    return f"quotas/{quote(quota_id, safe='')}"
