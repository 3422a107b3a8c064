"""Policy of the pool: its order, where it places claims, and what another strategy would have done
with the leases of the last week."""

from collections.abc import Sequence

from dash.development.base_component import Component

from gpudeck.markup import make

from ..pool.views import PoolView, SimulationView, StrategyOutcome, StrategyView
from .forms import form_button, order
from .parts import literal
from .pool_tables import fact_lines
from .reading import Parts
from .words import age, amount, plural, sentence

DAYS = 7
ORDERS = {
    "fair": "the team that held the fewest GPU-hours in the last weeks (an owner in no team counts "
            "alone) and in it the owner who did, then the oldest claim",
    "fifo": "the oldest claim", "smallest_first": "the claim for the fewest GPUs, then the oldest",
    "largest_first": "the claim for the most GPUs, then the oldest",
    "shortest_first": "the claim with the shortest term, then the oldest"}
BACKFILL = ("A later claim may start earlier if it delays neither the first in the queue nor a "
            "reservation (backfill).")
PLACEMENT = "; several GPUs come from one NVLink clique if possible, otherwise from one NUMA node."
HEADS = ("Strategy", "Wait, median", "Wait, 95th percentile", "Makespan", "GPU time used",
         "Could not be placed")
NOTHING = "No lease has ended in the last 7 days: nothing to compare."
RUNNING = "Simulating the last 7 days …"


def frame() -> list[Component]:
    return [
        make("dl#pool-policy.pool-facts"),
        make("details", [
            make("summary", "What would another strategy have done?"),
            make("div.pool-would", [
                make("dl#pool-strategies.pool-facts"), make("div#pool-compare.pool-compare"),
                make("div#pool-outcome", role="status")])])]


def policy_parts(pool: PoolView, strategies: Sequence[StrategyView], may_compare: bool) -> Parts:
    """Return how the pool decides. Pure."""
    order = ORDERS.get(pool.queue_order, pool.queue_order)
    alternatives = unused_strategies(strategies)
    current = next((one.name for one in strategies if one.is_used), pool.strategy)
    return {
        "pool-policy": fact_lines([
            ("Order", f"Higher priority first, then {order}. {BACKFILL}"),
            ("Placement", [make("code", pool.strategy), PLACEMENT])]),
        "pool-strategies": fact_lines([
            (one.name, f"{sentence(one.words)}{' In use.' if one.is_used else ''}")
            for one in strategies]),
        "pool-compare": _choice(current, alternatives) if may_compare and alternatives else None}


def unused_strategies(strategies: Sequence[StrategyView]) -> list[str]:
    return [one.name for one in strategies if not one.is_used]


def _choice(current: str, alternatives: Sequence[str]) -> list[Component]:
    """Return the choice of the view's `strategy`. The browser orders the simulation, which can
    take longer than a page is waited for, and gives the outcome to the page's next answer."""
    simulation = order("POST", "pool", "simulations", doing=RUNNING, keeps="simulation", body={
        "strategies": [literal(current), "$strategy"], "days": DAYS})
    return [
        make("p.field", [
            make("label", f"Compare {current} with", htmlFor="pool-other"),
            make("select#pool-other", [make("option", name, value=name) for name in alternatives],
                 data_view="strategy")]),
        form_button(".button.small", "Compare", simulation)]


def outcome(simulation: SimulationView) -> list[Component]:
    """Return what each strategy would have done. Pure."""
    if simulation.claims == 0:
        return [make("p", NOTHING)]
    return [make("p", f"{plural(simulation.claims, 'lease')} of the last {DAYS} days, simulated on "
                 "the current nodes:"), _table(simulation.items)]


def _table(items: Sequence[StrategyOutcome]) -> Component:
    rows = [(one.strategy, age(one.wait_p50_s), age(one.wait_p95_s), age(one.makespan_s),
             f"{amount(one.used_pct, 1)} %", amount(one.never)) for one in items]
    return make("div.rows-place", make("table.rows", [
        make("thead", make("tr", [make("th", head, scope="col") for head in HEADS])),
        make("tbody", [make("tr", [make("td", words, data_head=head)
                                   for head, words in zip(HEADS, row, strict=True)])
                       for row in rows])], aria_label="Strategies compared"))
