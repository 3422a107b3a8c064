"""GPUs of other sites, as their hubs report them: shown, and nothing else. Pure.

They are in `Fleet.all_nodes` and never in `Fleet.nodes`: what evaluates, acts and records goes over
the latter, so that it cannot meet them. An id is that of the site with the site's name before it:
two sites that claim the same GPU have two.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from gpudeck.contract.gpu_facts import GpuFacts
from gpudeck.contract.wire import Hello
from gpudeck.measures.metrics import COLUMN, Absence

from . import effects
from .fleet import Fleet, GpuStatus, Node, Site, forgettable
from .gpu_table import AVAILABLE, NO_TASK, REASON_CODE, SEVERAL, SPLIT, UNKNOWN_OWNER

MOST_NODES = 5_000  # of one site
MOST_GPUS = 20_000
STATE_OF = np.array([0, 1, 2, 1, 0, 3], np.uint8)  # what a node reports, by what a GPU is called


def id_at(site: str, ident: str) -> str:
    """Return the id of a site's node or board: no agent's id and no board's UUID has a colon."""
    return f"{site}:{ident}"


def own_id(ident: str) -> str:
    """Return the id by which its own site calls it."""
    return ident.partition(":")[2]


def group_at(site: str) -> str:
    """Return the group of a site's nodes: who sees all groups, or this one, sees the site."""
    return f"site-{site}"


def site_of(fleet: Fleet, node_id: str) -> str | None:
    """Return the site of a node; None: this hub views no other, so that there is only one."""
    if not fleet.sites:
        return None
    site = fleet.all_nodes[node_id].site
    return fleet.cluster if site is None else site.name


def open_sites(fleet: Fleet, event: effects.SitesViewed, now: float) -> list[effects.Effect]:
    fleet.cluster = event.own
    for name, url in event.sites:
        fleet.sites[name] = Site(name, url, since=now)
    return []


def apply_news(fleet: Fleet, event: effects.SiteHeard, now: float, mono: float
               ) -> list[effects.Effect]:
    """Apply `layout`, `owners` and `numbers`, each None where nothing of it is new."""
    site = fleet.sites[event.site]
    if event.layout is not None:
        why = _excess(fleet, site, event.layout)
        if why:
            site.slots = None
            return away(fleet, effects.SiteAway(site.name, why), now)
        _take_layout(fleet, site, event.layout, now, mono)
    if site.slots is None:
        return []
    if event.owners is not None:
        _take_owners(fleet, site.slots, event.owners)
    if event.numbers is None:
        return []
    _take_numbers(fleet, site, site.slots, event.numbers, now, mono)
    if site.state == "live":
        return []
    site.state, site.since, site.why = "live", now, ""
    return [effects.LogMessage("site is live", {"site": site.name})]


def _excess(fleet: Fleet, site: Site, layout: effects.SiteLayout) -> str:
    """Return why a layout is not taken, or "". A slot is another GPU's an hour after it was left,
    and a node's place never: a site must not fill them by naming more and more."""
    node_places = [node.at for node in fleet.all_nodes.values() if node.site is site]
    new_nodes = sum(id_at(site.name, node.id) not in fleet.all_nodes for node in layout.nodes)
    if len(node_places) + new_nodes > 2 * MOST_NODES:
        return f"it has named more than {2 * MOST_NODES:,} nodes since this hub began"
    slots_held = int(np.isin(fleet.node_at[: len(fleet)], node_places).sum()) if node_places else 0
    new = sum(fleet.slot_on(id_at(site.name, layout.nodes[at].id), id_at(site.name, gpu.uuid))
              is None for at, gpu in zip(layout.node_at.tolist(), layout.gpus[:MOST_GPUS],
                                         strict=False))
    if slots_held + new > 2 * MOST_GPUS:
        return f"it has named more than {2 * MOST_GPUS:,} GPUs within an hour"
    return ""


def away(fleet: Fleet, event: effects.SiteAway, now: float) -> list[effects.Effect]:
    """Note that a site is away: its GPUs are unknown now, and the last readings keep their age."""
    site = fleet.sites[event.site]
    is_news = site.state != "away"
    if is_news:
        site.state, site.since = "away", now
    former_why, site.why = site.why, event.why
    for node in site.nodes:
        node.state, node.connected = "silent", False
    if not is_news and former_why == event.why:
        return []
    return [effects.LogMessage("site is away", {"site": site.name, "why": event.why})]


def _take_layout(fleet: Fleet, site: Site, layout: effects.SiteLayout, now: float, mono: float
                 ) -> None:
    facts = [_facts_at(site.name, gpu) for gpu in layout.gpus[:MOST_GPUS]]
    site.left_out = len(layout.gpus) - len(facts)
    site.nodes = [_node(fleet, site, node, now, mono) for node in layout.nodes]
    names = [site.nodes[at].hello.node_id for at in layout.node_at[: len(facts)].tolist()]
    if any(fleet.slot_on(name, gpu.uuid) is None
           for name, gpu in zip(names, facts, strict=True)):
        fleet.spare = forgettable(fleet, mono)
        fleet.forget_models()
    order = [_slot(fleet, name, gpu) for name, gpu in zip(names, facts, strict=True)]
    before, site.slots = site.slots, np.array(order, np.intp)
    if before is not None:
        gone_slots = np.setdiff1d(before, site.slots)
        fleet.retired[gone_slots], fleet.retired_mono[gone_slots] = True, mono
    fleet.viewed[site.slots] = True
    fleet.show(site.slots, order, facts, mono)


def _slot(fleet: Fleet, node_id: str, facts: GpuFacts) -> int:
    slot = fleet.slot_on(node_id, facts.uuid)
    if slot is not None and fleet.facts[slot] == facts:
        return slot
    return fleet.slot(node_id, fleet.all_nodes[node_id].at, facts)


def _facts_at(site: str, facts: GpuFacts) -> GpuFacts:
    parent = facts.parent_uuid
    return msgspec.structs.replace(
        facts, uuid=id_at(site, facts.uuid),
        parent_uuid=None if parent is None else id_at(site, parent))


def _node(fleet: Fleet, site: Site, from_site: effects.SiteNode, now: float, mono: float) -> Node:
    node_id = id_at(site.name, from_site.id)
    # Of nobody: it has no key here and proves nothing.
    hello = Hello((1,), bytes(32), bytes(64), node_id, from_site.host, "", "site", 0,
                  from_site.agent, from_site.backend, driver_version=from_site.driver)
    node = fleet.all_nodes.get(node_id)
    if node is None:
        node = fleet.all_nodes[node_id] = Node(
            len(fleet.node_ids), hello, now, mono, connected=False, state="silent", site=site)
        fleet.node_ids.append(node_id)
        fleet.set_group(node_id, group_at(site.name))
    node.hello = hello
    return node


def _take_numbers(fleet: Fleet, site: Site, slots: npt.NDArray[np.intp],
                  numbers: effects.SiteNumbers, now: float, mono: float) -> None:
    count = len(slots)
    states, ages = numbers.states[:count], numbers.age_s[:count]
    there = (numbers.absent[:count] == Absence.PRESENT) & np.isfinite(numbers.values[:count])
    fleet.reported[slots] = STATE_OF[np.minimum(states, len(STATE_OF) - 1)]
    fleet.retired[slots] = is_gone = states == GpuStatus.RETIRED
    fleet.retired_mono[slots] = np.where(is_gone, fleet.retired_mono[slots], np.nan)
    low, high = (np.array([getattr(metric, end) for metric in fleet.metrics])
                 for end in ("low", "high"))
    there &= (numbers.values[:count] >= low) & (numbers.values[:count] <= high)
    fleet.values[slots] = np.where(there, numbers.values[:count], fleet.values[slots])
    absent = np.where(numbers.absent[:count] == Absence.PRESENT, Absence.UNKNOWN,
                      np.minimum(numbers.absent[:count], len(Absence) - 1))
    fleet.absent[slots] = np.where(there, Absence.PRESENT, absent)
    was_read = np.isfinite(ages)
    fleet.sampled_mono[slots] = np.where(was_read, numbers.received_mono - ages, -np.inf)
    fleet.sampled_at[slots] = np.where(
        was_read, now - (mono - numbers.received_mono) - np.where(was_read, ages, 0.0), np.nan)
    # Why not, the site does not say here.
    fleet.in_pool[slots] = True
    fleet.pool_reason[slots] = np.where(numbers.is_free[:count], AVAILABLE, np.where(
        fleet.owner[slots] == NO_TASK, REASON_CODE["unknown"], REASON_CODE["task"]))
    site.tasks = numbers.tasks
    for node, state in zip(site.nodes, numbers.node_states, strict=False):
        node.state, node.connected = state, state == "live"
        if state == "live":
            node.hear(now, numbers.received_mono)


def _take_owners(fleet: Fleet, slots: npt.NDArray[np.intp], owners: effects.SiteOwners) -> None:
    """Apply owners; of several owners of one GPU the site does not say who they are."""
    fleet.forget_owners()
    numbers = [fleet.owner_number(name) for name in owners.names]
    own = np.full(2**16, UNKNOWN_OWNER, np.uint16)
    own[: len(numbers)] = numbers
    own[[NO_TASK, SPLIT, SEVERAL]] = NO_TASK, NO_TASK, SEVERAL
    codes = owners.owner[: len(slots)]
    slots, owner = slots[: len(codes)], own[codes]
    for slot, number in zip(slots.tolist(), owner.tolist(), strict=True):
        fleet.users[slot] = () if number == NO_TASK else (
            UNKNOWN_OWNER if number == SEVERAL else number,)
    fleet.owner[slots] = owner
    fleet.are_users_known[slots] = owner != UNKNOWN_OWNER
    fleet.task_count[slots] = owner != NO_TASK
    fleet.is_paused[slots] = owners.is_paused[: len(codes)]
    fleet.owners_version += 1


def columns_of(keys: tuple[str, ...], rows: npt.NDArray[np.float32],
               absent: npt.NDArray[np.uint8]
               ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    """Return columns in the order of this hub's metrics: the site may be older or newer."""
    values = np.full((len(rows), len(COLUMN)), np.nan)
    codes = np.full(values.shape, Absence.UNKNOWN, np.uint8)
    for at, key in enumerate(keys):
        if key in COLUMN:
            values[:, COLUMN[key]], codes[:, COLUMN[key]] = rows[:, at], absent[:, at]
    return values, codes

